//! What a process publishes about itself: any bytes.

use jbpf_prof::symbolize::process_context::decode;

pub(crate) fn run(data: &[u8]) {
    let resource = decode(data);
    assert!(resource.iter().count() <= 64);
    for attribute in resource.iter() {
        assert!(!attribute.key.starts_with("process.") && !attribute.value.is_empty());
        assert_eq!(resource.get(&attribute.key), Some(&attribute.value));
    }
}
