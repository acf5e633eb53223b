//! Prometheus's text format.

/// Asserts that each metric is announced once, with its type, before its samples; that names and labels are
/// well-formed; and that values are numbers.
pub(crate) fn assert_well_formed(text: &str) {
    let mut announced: Vec<&str> = Vec::new();
    let mut samples = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "HELP", name, help] => {
                assert!(
                    !announced.contains(&name) && name.starts_with("jbpf_prof_") && !help.is_empty(),
                    "{line}"
                );
                announced.push(name);
            }
            ["#", "TYPE", name, kind] => {
                assert!(announced.last() == Some(&name) && ["counter", "gauge"].contains(&kind), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            }
            _ => {
                let (key, value) = line.rsplit_once(' ').unwrap();
                let name = key.split('{').next().unwrap();
                assert_eq!(announced.last(), Some(&name), "{line}");
                assert!(value.parse::<f64>().is_ok(), "{line}");
                if let Some(labels) = key.strip_prefix(name).filter(|labels| !labels.is_empty()) {
                    assert!(
                        labels.starts_with('{') && labels.ends_with("\"}") && labels.contains("=\""),
                        "{line}"
                    );
                }
                samples += 1;
            }
        }
    }
    assert!(samples > 20, "only {samples} samples");
    assert!(text.ends_with('\n'));
}
