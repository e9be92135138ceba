//! Network modes, and `services`: ports of the host's loopback interface that appear inside.

use cordon_protocol::{NetworkMode, limits::SERVICES_MAX};

/// A mode as the configuration writes it.
pub(crate) fn mode_name(mode: NetworkMode) -> &'static str {
    match mode {
        NetworkMode::None => "none",
        NetworkMode::Services => "services",
        NetworkMode::Host => "host",
    }
}

/// The ports of a profile in this mode; the key that is wrong, and how, where they make no sense.
pub(super) fn checked(
    network: NetworkMode,
    given: Option<Vec<i64>>,
) -> Result<Vec<u16>, (&'static str, String)> {
    let given = given.unwrap_or_default();
    let wrong = |problem: String| Err(("services", problem));
    if network != NetworkMode::Services {
        return match given.first() {
            None => Ok(Vec::new()),
            Some(port) => wrong(format!(
                "{port} is reached only with `network = \"services\"`; set that too, or leave it out"
            )),
        };
    }
    if given.is_empty() {
        let problem = "`services` wants the ports: services = [5432], or use `none`";
        return Err(("network", problem.to_owned()));
    }
    if given.len() > SERVICES_MAX {
        return wrong(format!("{} ports are too many; name at most {SERVICES_MAX}", given.len()));
    }
    let mut ports = Vec::new();
    for number in given {
        match u16::try_from(number) {
            Ok(port) if port > 0 && ports.contains(&port) => {
                return wrong(format!("{port} is there twice; name it once"));
            }
            Ok(port) if port > 0 => ports.push(port),
            _ => return wrong(format!("{number} is no port; name one from 1 to 65535")),
        }
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;
    use NetworkMode::{Host, None as No, Services};

    #[test]
    fn ports_come_with_their_mode_each_once_and_in_range() {
        assert_eq!(checked(Services, Some(vec![5432, 1, 65_535])), Ok(vec![5432, 1, 65_535]));
        assert_eq!((checked(No, None), checked(Host, Some(vec![]))), (Ok(vec![]), Ok(vec![])));
        assert_eq!(checked(Services, Some((1..=16).collect())).map(|ports| ports.len()), Ok(16));
        for (network, given, key, says) in [
            (Services, None, "network", "wants the ports"),
            (Services, Some(vec![]), "network", "wants the ports"),
            (No, Some(vec![80]), "services", "80 is reached only with"),
            (Host, Some(vec![80]), "services", "80 is reached only with"),
            (Services, Some(vec![0]), "services", "0 is no port"),
            (Services, Some(vec![-1]), "services", "-1 is no port"),
            (Services, Some(vec![80, 65_536]), "services", "65536 is no port"),
            (Services, Some(vec![80, 81, 80]), "services", "80 is there twice"),
            (Services, Some((1..=17).collect()), "services", "17 ports are too many; name at most 16"),
        ] {
            let (wrong, problem) = checked(network, given.clone()).unwrap_err();
            assert!(wrong == key && problem.contains(says), "{given:?}: {wrong}: {problem}");
        }
    }
}
