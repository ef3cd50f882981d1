# shellcheck shell=bash disable=SC2154
# Writes Postfix's configuration below $dir/pf. Sourced by `mail`.

write_postfix() {
    local spool=$dir/pf/spool queue
    mkdir -p "$dir/pf/etc" "$dir/pf/data" "$spool/pid"
    for queue in active bounce corrupt defer deferred flush hold incoming private saved trace; do
        mkdir -p "$spool/$queue"
        chown postfix:root "$spool/$queue"
        chmod 700 "$spool/$queue"
    done
    mkdir -p "$spool/maildrop" "$spool/public"
    chown postfix:postdrop "$spool/maildrop" "$spool/public"
    chmod 730 "$spool/maildrop"
    chmod 710 "$spool/public"
    chown postfix:postfix "$dir/pf/data"
    chmod 700 "$dir/pf/data"
    main_cf >"$dir/pf/etc/main.cf"
    master_cf >"$dir/pf/etc/master.cf"
    # Refusals on demand: at once, and from a "remote" server that refuses what main.cf has already taken.
    printf '%s\n' '/^reject[^@]*@/   550 5.1.1 no such user here' '/^defer[^@]*@/    451 4.7.1 greylisted, try again later' \
        >"$dir/pf/etc/recipients"
    printf '%s\n' "/@bounce\\.test\$/   smtp:[127.0.0.1]:$SINK_PORT" "/@later\\.test\$/    smtp:[127.0.0.1]:$SINK_PORT" \
        >"$dir/pf/etc/transport"
    printf '%s\n' '/@later\.test$/    451 4.4.1 try again later' '/./                 550 5.1.1 mailbox unavailable' \
        >"$dir/pf/etc/sink"
}

main_cf() {
    cat <<TEXT
compatibility_level = 3.6
queue_directory = $dir/pf/spool
data_directory = $dir/pf/data
daemon_directory = $sbin
command_directory = /usr/sbin
mail_owner = postfix
setgid_group = postdrop
maillog_file = $dir/log/postfix.log
maillog_file_prefixes = $dir
myhostname = mail.example.test
mydomain = example.test
myorigin = example.test
mydestination =
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
mynetworks = 127.0.0.0/8
# as in the world: a stranger's mail is not repaired, an authenticated user's is
local_header_rewrite_clients = permit_sasl_authenticated
smtputf8_enable = yes
alias_maps =
alias_database =
local_recipient_maps =
recipient_delimiter = +
virtual_mailbox_domains = example.test
virtual_mailbox_maps =
virtual_transport = lmtp:inet:127.0.0.1:$LMTP_PORT
# mail for every other domain lands in Dovecot too: nothing ever leaves
default_transport = lmtp:inet:127.0.0.1:$LMTP_PORT
relay_transport = lmtp:inet:127.0.0.1:$LMTP_PORT
transport_maps = regexp:$dir/pf/etc/transport
disable_dns_lookups = yes
smtp_dns_support_level = disabled
lmtp_tls_security_level = none
smtpd_sasl_type = dovecot
smtpd_sasl_path = $dir/d/auth-smtp
smtpd_tls_cert_file = $dir/tls/server.crt
smtpd_tls_key_file = $dir/tls/server.key
smtpd_tls_security_level = may
smtpd_relay_restrictions = permit_mynetworks, permit_sasl_authenticated, reject
smtpd_recipient_restrictions = check_recipient_access regexp:$dir/pf/etc/recipients, permit
smtpd_peername_lookup = no
message_size_limit = 52428800
mailbox_size_limit = 0
smtpd_client_connection_count_limit = 0
default_process_limit = 200
initial_destination_concurrency = 20
default_destination_concurrency_limit = 40
in_flow_delay = 0
smtpd_error_sleep_time = 0
minimal_backoff_time = 2s
maximal_backoff_time = 5s
queue_run_delay = 2s
maximal_queue_lifetime = 1h
bounce_queue_lifetime = 1h
lmtp_connection_cache_on_demand = yes
lmtp_connection_cache_destinations = 127.0.0.1
notify_classes =
biff = no
TEXT
}

master_cf() {
    local authenticated='  -o smtpd_sasl_auth_enable=yes
  -o smtpd_tls_auth_only=yes
  -o smtpd_relay_restrictions=permit_sasl_authenticated,reject
  -o smtpd_client_restrictions=permit_sasl_authenticated,reject'
    cat <<TEXT
127.0.0.1:$MX_PORT inet n - n - - smtpd
127.0.0.1:$SUBMISSION_PORT inet n - n - - smtpd
  -o syslog_name=postfix/submission
  -o smtpd_tls_security_level=encrypt
$authenticated
127.0.0.1:$SUBMISSIONS_PORT inet n - n - - smtpd
  -o syslog_name=postfix/submissions
  -o smtpd_tls_wrappermode=yes
$authenticated
127.0.0.1:$SINK_PORT inet n - n - - smtpd
  -o syslog_name=postfix/sink
  -o myhostname=remote.bounce.test
  -o smtpd_tls_security_level=none
  -o smtpd_recipient_restrictions=check_recipient_access,regexp:$dir/pf/etc/sink,reject
pickup    unix  n - n 60   1 pickup
cleanup   unix  n - n -    0 cleanup
qmgr      unix  n - n 2    1 qmgr
tlsmgr    unix  - - n 1000? 1 tlsmgr
rewrite   unix  - - n -    - trivial-rewrite
bounce    unix  - - n -    0 bounce
defer     unix  - - n -    0 bounce
trace     unix  - - n -    0 bounce
verify    unix  - - n -    1 verify
flush     unix  n - n 1000? 0 flush
proxymap  unix  - - n -    - proxymap
proxywrite unix - - n -    1 proxymap
smtp      unix  - - n -    - smtp
relay     unix  - - n -    - smtp
showq     unix  n - n -    - showq
error     unix  - - n -    - error
retry     unix  - - n -    - error
discard   unix  - - n -    - discard
lmtp      unix  - - n -    - lmtp
anvil     unix  - - n -    1 anvil
scache    unix  - - n -    1 scache
postlog   unix-dgram n - n - 1 postlogd
TEXT
}
