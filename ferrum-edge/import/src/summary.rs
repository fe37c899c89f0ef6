//! How much of an import answers 503, for people and for programs.

use serde_json::{Value, json};

use crate::draft::Import;

impl Import {
    /// How many proxies and locations answer 503, as a sentence; `None` where none does.
    pub fn closed_summary(&self) -> Option<String> {
        if self.closed_proxies == 0 {
            return None;
        }
        let proxies = format!("{} of {} proxies", self.closed_proxies, self.proxies.len());
        let locations = match self.closed_locations {
            (0, _) => String::new(),
            (closed, all) => format!(", for {closed} of {all} locations"),
        };
        Some(format!("{proxies} answer 503 until they are completed by hand{locations}"))
    }

    /// The report for machines, with how much answers 503.
    pub fn report_json(&self) -> Value {
        let mut report = self.report.to_json();
        report["proxies"] = json!({ "all": self.proxies.len(), "closed": self.closed_proxies });
        let (closed, all) = self.closed_locations;
        report["locations"] = json!({ "all": all, "closed": closed });
        report
    }
}
