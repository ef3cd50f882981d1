# shellcheck shell=bash disable=SC2154
# Writes Dovecot's configuration into $dir/dovecot.conf, for the installed version: 2.4 renamed most settings.
# Sourced by `mail`.

write_dovecot() {
    mkdir -p "$dir/d" "$dir/state" "$dir/mail"
    chown "$owner:$owner" "$dir/mail"
    touch "$dir/log/dovecot.log"
    local version
    version=$(dovecot --version)
    case $version in
    2.[0-3].*) { dovecot_shared && dovecot_2_3; } >"$dir/dovecot.conf" ;;
    *) { dovecot_2_4_versions && dovecot_shared && dovecot_2_4; } >"$dir/dovecot.conf" ;;
    esac
}

dovecot_shared() {
    cat <<TEXT
instance_name = $(basename "$dir")
base_dir = $dir/d
state_dir = $dir/state
listen = 127.0.0.1
log_path = $dir/log/dovecot.log
ssl = yes
auth_mechanisms = plain login
auth_failure_delay = 0
mail_uid = $owner
mail_gid = $owner
first_valid_uid = $owner
first_valid_gid = $owner
recipient_delimiter = +
lmtp_hdr_delivery_address = final
lmtp_save_to_detail_mailbox = no
mail_max_userip_connections = 1000
namespace inbox {
  inbox = yes
  separator = /
  mailbox Sent {
    auto = create
    special_use = \\Sent
  }
  mailbox Trash {
    auto = create
    special_use = \\Trash
  }
}
service imap-login {
  inet_listener imap {
    port = $IMAP_PORT
  }
  inet_listener imaps {
    port = $IMAPS_PORT
    ssl = yes
  }
  process_min_avail = 1
  client_limit = 2000
}
service imap {
  process_limit = 2000
}
service anvil {
  client_limit = 6000
}
service auth {
  client_limit = 6000
  unix_listener auth-smtp {
    mode = 0666
  }
}
service lmtp {
  inet_listener lmtp {
    port = $LMTP_PORT
  }
  process_min_avail = 1
}
service stats {
  client_limit = 6000
}
protocol lmtp {
  postmaster_address = postmaster@example.test
}
TEXT
}

dovecot_2_3() {
    cat <<TEXT
protocols = imap lmtp
ssl_cert = <$dir/tls/server.crt
ssl_key = <$dir/tls/server.key
disable_plaintext_auth = no
auth_default_realm = example.test
auth_username_format = %Lu
mail_location = maildir:$dir/mail/%Ld/%Ln/Maildir
passdb {
  driver = static
  args = password=secret
}
userdb {
  driver = static
  args = uid=$owner gid=$owner home=$dir/mail/%Ld/%Ln allow_all_users=yes
}
TEXT
}

dovecot_2_4_versions() {
    echo 'dovecot_config_version = 2.4.0'
    echo 'dovecot_storage_version = 2.4.0'
}

dovecot_2_4() {
    cat <<TEXT
protocols = imap lmtp
ssl_server_cert_file = $dir/tls/server.crt
ssl_server_key_file = $dir/tls/server.key
auth_allow_cleartext = yes
auth_default_domain = example.test
auth_username_format = %{user | lower}
mail_driver = maildir
mail_path = $dir/mail/%{user | domain | lower}/%{user | username | lower}/Maildir
mail_home = $dir/mail/%{user | domain | lower}/%{user | username | lower}
passdb static {
  password = secret
}
userdb static {
  allow_all_users = yes
  fields {
    uid = $owner
    gid = $owner
    home = $dir/mail/%{user | domain | lower}/%{user | username | lower}
  }
}
TEXT
}
