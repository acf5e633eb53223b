//! Prometheus's text format, version 0.0.4.

use std::fmt::{Display, Write};

#[derive(Debug, Default)]
pub(super) struct Exposition {
    text: String,
}

impl Exposition {
    /// Begins a metric; its samples follow. `name` does not include the common prefix.
    pub(super) fn metric(&mut self, name: &str, kind: &str, help: &str) -> Metric<'_> {
        let name = format!("jbpf_prof_{name}");
        // Writing into a String does not fail.
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        Metric { text: &mut self.text, name }
    }

    /// Adds a metric with one sample.
    pub(super) fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.metric(name, kind, help).sample(&[], value);
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}

pub(super) struct Metric<'a> {
    text: &'a mut String,
    name: String,
}

impl Metric<'_> {
    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(&self.name);
        for (at, (label, text)) in labels.iter().enumerate() {
            self.text.push(if at == 0 { '{' } else { ',' });
            let _ = write!(self.text, "{label}=\"{}\"", escaped(text));
        }
        let _ = writeln!(self.text, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::Exposition;

    #[test]
    fn metrics_have_their_form() {
        let mut all = Exposition::default();
        all.single("ticks_total", "counter", "Ticks.", 7);
        let mut lost = all.metric("lost_total", "counter", "Lost.");
        lost.sample(&[("reason", "ring \"full\"\n"), ("a", "\\")], 0.5);
        assert_eq!(
            all.finish(),
            "# HELP jbpf_prof_ticks_total Ticks.\n# TYPE jbpf_prof_ticks_total counter\njbpf_prof_ticks_total 7\n\
             # HELP jbpf_prof_lost_total Lost.\n# TYPE jbpf_prof_lost_total counter\n\
             jbpf_prof_lost_total{reason=\"ring \\\"full\\\"\\n\",a=\"\\\\\"} 0.5\n"
        );
    }
}
