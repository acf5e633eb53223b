//! What an agent may do in which build: HotSpot can crash in the very events that the agent enables.

use super::refusal::Refusal;
use super::version::JavaVersion;

/// JDK-8173361: code was freed while its load event waited in the Service Thread's queue. JDK 14 has the fix. 13u and
/// 11u followed within 2020 (openjdk/jdk13u-dev pull request 87, of January 2021, names the parity with 11u): updates
/// from April 2021 on have it. 8u followed in 2022 (openjdk/jdk8u-dev pull request 9).
const LOAD_EVENT: &str = "JDK-8173361";
/// JDK-8305165: in 8u only, that fix protected nothing until 8u382 (openjdk/jdk8u-dev pull request 293).
const LOAD_EVENT_8U: &str = "JDK-8305165";

/// What the agent may do in a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentPermissions {
    /// The agent may enable `DynamicCodeGenerated`: the names of stubs and adapters.
    pub stubs: bool,
}

/// Decides by the version. `force` permits builds that would be refused, but never the event for stubs: most of them
/// can be read from the JVM's memory.
///
/// JDK-8268364 (jmethodIDs of a class being unloaded; fixed in 18, 17.0.14 and 11.0.26, by openjdk/jdk17u-dev pull
/// request 2839 and openjdk/jdk11u-dev 2935 of September 2024) forbids nothing. The crash needs an id that was kept.
/// The agent uses an id only within the load event, while HotSpot keeps the code and so its classes alive.
///
/// # Errors
/// [`Refusal::KnownCrash`] if the agent may crash this build, [`Refusal::UnknownVersion`] without a version; `force`
/// suppresses both.
pub fn permitted(version: Option<JavaVersion>, force: bool) -> Result<AgentPermissions, Refusal> {
    let Some(version) = version else {
        return if force { Ok(AgentPermissions { stubs: false }) } else { Err(Refusal::UnknownVersion) };
    };
    match load_event_crash(version) {
        Some(bug) if !force => Err(Refusal::KnownCrash(bug.to_owned())),
        _ => Ok(AgentPermissions { stubs: stub_event_is_safe(version) }),
    }
}

fn load_event_crash(version: JavaVersion) -> Option<&'static str> {
    let first_safe = match version.feature {
        8 if version.update >= 342 => return (version.update < 382).then_some(LOAD_EVENT_8U),
        8 => JavaVersion::new(8, 0, 382),
        11 => JavaVersion::new(11, 0, 11),
        13 => JavaVersion::new(13, 0, 7),
        _ => JavaVersion::new(14, 0, 0),
    };
    (version < first_safe).then_some(LOAD_EVENT)
}

/// JDK-8212155: enabling `DynamicCodeGenerated` races with posting it. JDK 17 has the fix. 11u and 8u
/// (openjdk/jdk11u-dev pull request 3051 of June 2025, openjdk/jdk8u-dev 674 of August 2025) have it since the updates
/// of October 2025.
fn stub_event_is_safe(version: JavaVersion) -> bool {
    match version.feature {
        8 => version.update >= 472,
        11 => version >= JavaVersion::new(11, 0, 29),
        feature => feature >= 17,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_with_known_crashes_are_refused_by_name_unless_forced() {
        let stubs = |text: &str, force| permitted(JavaVersion::parse(text), force).map(|p| p.stubs);
        let crash = |bug: &str| Err(Refusal::KnownCrash(bug.to_owned()));
        let table = [
            ("25.292-b10", crash(LOAD_EVENT)),
            ("25.342-b07", crash(LOAD_EVENT_8U)),
            ("25.372-b07", crash(LOAD_EVENT_8U)),
            ("25.382-b05", Ok(false)),
            ("25.462-b08", Ok(false)),
            ("25.472-b08", Ok(true)),
            ("9.0.4+11", crash(LOAD_EVENT)),
            ("11.0.2+9", crash(LOAD_EVENT)),
            ("11.0.11+9", Ok(false)),
            ("11.0.29+7", Ok(true)),
            ("12.0.2+10", crash(LOAD_EVENT)),
            ("13.0.7+5", Ok(false)),
            ("14.0.1+7", Ok(false)),
            ("16.0.2+7", Ok(false)),
            ("17.0.1+12", Ok(true)),
            ("21.0.3+9", Ok(true)),
            ("25.0.3+9-LTS", Ok(true)),
        ];
        for (text, expected) in table {
            assert_eq!(stubs(text, false), expected, "{text}");
            assert!(stubs(text, true).is_ok(), "{text} forced");
        }
        assert_eq!(permitted(None, false), Err(Refusal::UnknownVersion));
        assert_eq!(permitted(None, true), Ok(AgentPermissions { stubs: false }));
    }
}
