//! Containers of Podman, in a user namespace, are services: sinks and queries use their names.

use prost::Message as _;

use crate::agent::results;
use crate::home;
use crate::push::{PushRequest, exported, pause_and_drain_spool};
use crate::receiver::{Receiver, free_port};
use crate::run::Daemon;
use testkit::container;
use testkit::folded::Folded;
use testkit::java::{Program, classes, in_container};
use testkit::scratch;

#[test]
fn a_jvm_in_a_container_of_podman_is_a_service() {
    in_container(21, |jdk| {
        let name = container::new_name();
        let command = Program::new("Shares").contained_command();
        let (root, bind, limit) = (jdk.root().unwrap(), (classes(), "/tmp/classes"), ["--cpus", "0.3"]);
        let _java = container::start_by_podman(&name, root, &command, bind, &limit);
        let ports = [free_port(), free_port()];
        let [pyroscope, collector] = ports.map(Receiver::listen);
        let urls = format!(
            "pyroscope-url = \"http://127.0.0.1:{}\"\notlp-url = \"http://127.0.0.1:{}\"\nagent-cgroup = [\"*libpod*\"]\nattach-timeout = \"60s\"",
            ports[0], ports[1]
        );
        let mut daemon = Daemon::start(&home("services"), &urls);
        // On a busy machine this may take long.
        let window = format!("/window?format=folded&container={name}");
        daemon.wait("enough of it", |daemon| {
            let kept = daemon.ask("api.sock", &window).ok().filter(|answer| answer.status == 200);
            kept.is_some_and(|kept| {
                Folded::parse(&kept.text()).keep(|stack| stack[0] != "[lost]").total() > 150
            })
        });
        assert_eq!(results(&daemon, "agent"), 1, "{}", daemon.metrics());
        let seconds = daemon.metric("jvms_throttled_seconds_total");
        assert!(seconds > 0.0, "its cgroup's limit keeps it from running");
        pause_and_drain_spool(&mut daemon);

        let file = scratch("services-profiles").join("x.pb.gz");
        let mut own = Folded::default();
        pyroscope.with(|taken| {
            for request in taken.iter().map(|taken| PushRequest::decode(taken.body.as_slice()).unwrap()) {
                for series in &request.series {
                    let is_own = series.label("container") == Some(&name);
                    assert_eq!(is_own, series.label("service_name") == Some(&name));
                    if is_own {
                        own.add(series.profile(&file));
                    }
                }
            }
        });
        assert_eq!(own.count(|stack| stack[0] != "java"), 0, "{}", own.top(9));
        let (main, round) = (own.within("Shares.main").total(), own.within("Shares.round").total());
        assert!(round > 50 && round * 10 > main * 9, "{round} of {main}:\n{}", own.top(9));

        let attributes = collector.with(|taken| {
            let resources = taken.iter().flat_map(|taken| exported(&taken.body).resource_profiles);
            let mut all = resources.map(|resource| format!("{:?}", resource.resource.unwrap().attributes));
            all.find(|text| text.contains(&name)).expect("a resource of that name")
        });
        for key in ["service.name", "container.name", "container.id"] {
            assert!(attributes.contains(key), "{key}: {attributes}");
        }

        let asked = daemon.api(&window);
        let asked = Folded::parse(&asked.text()).keep(|stack| stack[0] != "[lost]");
        assert_eq!(asked.total(), own.total(), "what is kept of it is what was pushed");
        assert_eq!(daemon.api("/window?format=folded&pod=no-such").status, 404);
    });
}
