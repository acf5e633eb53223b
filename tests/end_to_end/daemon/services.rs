//! Containers of Podman, in a user namespace, are services: sinks and queries use their names.

use std::fs;

use prost::Message as _;

use super::agent::results;
use super::push::{PushRequest, exported, pause_and_drain_spools};
use super::receiver::{Receiver, free_port};
use super::run::{Answer, Daemon};
use super::{home, now_ms};
use testkit::container;
use testkit::folded::Folded;
use testkit::java::{Program, classes, in_container};
use testkit::scratch;
use testkit::target::Target;
use testkit::wald::{Claim, Verdict};

/// Whether nearly all samples of the program's main method are in the method that it calls.
fn judge(stacks: &Folded) -> Verdict {
    let main = stacks.within("Shares.main");
    Claim::AtLeast(0.9).judge(main.within("Shares.round").total(), main.total())
}

/// The id of a container of Podman, a part of its cgroup's path.
fn container_id(program: &Target) -> String {
    let groups = fs::read_to_string(format!("/proc/{}/cgroup", program.pid())).unwrap();
    let id = groups.split(|c: char| !c.is_ascii_hexdigit()).find(|part| part.len() == 64);
    id.unwrap_or_else(|| panic!("{groups}")).to_owned()
}

/// What Pyroscope has of the service.
fn received(pyroscope: &Receiver, name: &str) -> Folded {
    let file = scratch("services-profiles").join("x.pb.gz");
    let mut own = Folded::default();
    pyroscope.with(|taken| {
        for request in taken.iter().map(|taken| PushRequest::decode(taken.body.as_slice()).unwrap()) {
            for series in &request.series {
                let is_own = series.label("container") == Some(name);
                assert_eq!(is_own, series.label("service_name") == Some(name));
                if is_own {
                    own.add(series.profile(&file));
                }
            }
        }
    });
    own
}

#[test]
fn a_jvm_in_a_container_of_podman_is_a_service() {
    in_container(21, |jdk| {
        let name = container::new_name();
        let command = Program::new("Shares").args(&["100"]).contained_command();
        let (root, bind, limit) = (jdk.root().unwrap(), (classes(), "/tmp/classes"), ["--cpus", "0.3"]);
        let java = container::start_by_podman(&name, root, &command, bind, &limit);
        let ports = [free_port(), free_port()];
        let [pyroscope, collector] = ports.map(Receiver::listen);
        // Only this container: other tests have JVMs in containers, too.
        let settings = format!(
            "frequency = 499\njava = \"vm\"\nagent-cgroup = [\"*libpod*{}*\"]\nattach-timeout = \"60s\"\n\
             pyroscope-url = \"http://127.0.0.1:{}\"\notlp-url = \"http://127.0.0.1:{}\"",
            container_id(&java),
            ports[0],
            ports[1]
        );
        let window = format!("/window?from={}&format=folded&container={name}", now_ms() / 1000);
        let mut daemon = Daemon::start(&home("services"), &settings);
        daemon.wait("enough of it", |daemon| {
            let kept = daemon.ask("api.sock", &window).map(Answer::stacks).unwrap_or_default();
            let verdict = judge(&kept);
            assert_ne!(verdict, Verdict::Wrong, "{}", kept.top(9));
            verdict == Verdict::Right && kept.within("Shares.round").total() > 50
        });
        assert_eq!(results(&daemon, "agent"), 1, "{}", daemon.metrics());
        let seconds = daemon.metric("jvms_throttled_seconds_total");
        assert!(seconds > 0.0, "its cgroup's limit keeps it from running");
        pause_and_drain_spools(&mut daemon, &["pyroscope", "otlp"]);

        let own = received(&pyroscope, &name);
        assert_eq!(own.count(|stack| stack[0] != "java"), 0, "{}", own.top(9));
        let round = own.within("Shares.main").within("Shares.round").total();
        assert!(round > 50 && judge(&own) == Verdict::Right, "{round}:\n{}", own.top(9));
        let attributes = collector.with(|taken| {
            let resources = taken.iter().flat_map(|taken| exported(&taken.body).resource_profiles);
            let mut all = resources.map(|resource| format!("{:?}", resource.resource.unwrap().attributes));
            all.find(|text| text.contains(&name)).expect("a resource of that name")
        });
        for key in ["service.name", "container.name", "container.id"] {
            assert!(attributes.contains(key), "{key}: {attributes}");
        }

        let asked = daemon.api(&window).stacks();
        assert_eq!(asked.total(), own.total(), "what is kept of it is what was pushed");
        assert_eq!(daemon.api("/window?format=folded&pod=no-such").status, 404);
        drop(java);
    });
}
