//! The table at the end: what was measured, beside what it should be.

/// The rows so far.
#[derive(Default)]
pub struct Table {
    rows: Vec<[String; 5]>,
}

impl Table {
    /// One figure: of the daemon, of the bare loop where there is one, the target, and whether it is met.
    pub fn row(&mut self, what: &str, daemon: impl Into<String>, bare: impl Into<String>, target: &str, met: bool) {
        let met = if met { "yes" } else { "NO" };
        self.rows.push([what.to_owned(), daemon.into(), bare.into(), target.to_owned(), met.to_owned()]);
    }

    /// One figure without a target.
    pub fn note(&mut self, what: &str, daemon: impl Into<String>, bare: impl Into<String>) {
        self.rows.push([what.to_owned(), daemon.into(), bare.into(), String::new(), String::new()]);
    }

    /// Prints all.
    pub fn print(&self) {
        let head = ["figure", "dutiful", "bare loop", "target", "met"].map(str::to_owned);
        let widths: Vec<usize> =
            (0..5).map(|column| self.rows.iter().chain([&head]).map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
        for row in [&head].into_iter().chain(&self.rows) {
            let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            println!("{}", cells.join("  ").trim_end());
        }
    }
}
