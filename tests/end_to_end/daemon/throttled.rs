//! The throttled time of JVMs over all windows.

/// The metric is the sum of all JVMs of the machine, and other tests throttle JVMs, too.
mod alone {
    use std::process::Command;
    use std::thread;

    use super::super::home;
    use super::super::run::Daemon;
    use testkit::cgroup::Group;
    use testkit::java::{Jdk, Program};
    use testkit::target::Target;
    use testkit::{is_root, native, scratch, skip};

    /// The accuracy of a sum of microseconds.
    const ROUNDING: f64 = 0.001;

    /// More CPU time than a group can use.
    fn enough() -> usize {
        1000 * thread::available_parallelism().unwrap().get()
    }

    /// Limits the group until it has been throttled for this time; returns for how long it was.
    fn throttle(daemon: &mut Daemon, group: &Group, seconds: f64) -> f64 {
        let begun = group.throttled();
        group.limit(100);
        daemon.wait("a limit that is felt", |_| group.throttled() > begun + seconds);
        group.throttled() - begun
    }

    /// Waits until the daemon has taken in the second that goes on now and another one.
    fn wait_for_seconds(daemon: &mut Daemon) {
        let seconds = |daemon: &Daemon| daemon.said().matches("taken in within").count();
        let before = seconds(daemon);
        daemon.wait("two seconds", |daemon| seconds(daemon) >= before + 2);
    }

    #[test]
    fn each_window_has_its_own_throttling_also_if_it_is_late_or_the_jvm_has_exited() {
        if !is_root() {
            return;
        }
        let Some(group) = Group::limitable("throttled-window") else {
            return skip("no hierarchy here has the cpu controller");
        };
        // The limit has no effect yet.
        group.limit(enough());
        let java = Program::new("Shares").args(&["100"]).start_in(&group);
        let before = group.throttled();
        // The JVM's stacks wait for the next window, and so does the window that contains them.
        let settings = "java = \"agent\"\nattach-timeout = \"60s\"\nlog-level = \"debug\"";
        let mut daemon = Daemon::start(&home("throttled"), settings);
        daemon.wait("the first window", |daemon| daemon.said().contains("sampling: begun"));
        let within = throttle(&mut daemon, &group, 0.1);
        group.limit(enough());
        daemon.wait_for_windows(1);
        daemon.pause();
        let (first, at_most) = (daemon.metric("jvms_throttled_seconds_total"), group.throttled() - before);
        assert!(
            (within - ROUNDING..=at_most + ROUNDING).contains(&first),
            "{first} s, but it is between {within} and {at_most}: {}",
            daemon.said()
        );

        // Windows are not reported while a JVM that ran in the first of them has not said whether it has names.
        let windows = daemon.files().len();
        daemon.throw(false);
        daemon.wait_for_windows(windows + 1);
        // This JVM runs while it is linked, and then does nothing.
        let slow = native::library(&scratch("slow-link"), "slow_link", &[]);
        let line = Program::new("Shares").paused().host_command(&Jdk::host());
        let held = Target::spawn(Command::new(&line[0]).args(&line[1..]).env("LD_AUDIT", slow));
        daemon.wait("a JVM that does not answer", Daemon::has_helper);
        let within = throttle(&mut daemon, &group, 0.5);
        // The throttled time of a JVM's last window cannot be known.
        wait_for_seconds(&mut daemon);
        drop(java);
        wait_for_seconds(&mut daemon);
        drop(held);
        daemon.pause();
        let shown = daemon.metric("jvms_throttled_seconds_total") - first;
        assert!(shown >= within - ROUNDING, "{shown} s, but it was {within}: {}", daemon.said());
    }
}
