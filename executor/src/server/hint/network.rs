//! Connections and names that lead out of a sandbox without a way out.
//!
//! A line of error output, or curl's exit status, gives a failure and an address. The second fact is that the
//! sandbox's network has its loopback interface only, and that the address is not on it. What is refused on the
//! loopback address was refused by nobody but the command's own machine.

use super::{Failure, hint};
use cordon_protocol::{Hint, NamespaceName, NetworkMode};
use std::net::IpAddr;

/// What programs say of a name that cannot be asked for, or of an address without a route; in lower case.
const WORDS: [&str; 12] = [
    "could not resolve host",
    "temporary failure in name resolution",
    "temporary failure resolving",
    "unable to resolve host",
    "could not translate host name",
    "failed to lookup address",
    "eai_again",
    "network is unreachable",
    "network unreachable",
    "enetunreach",
    "couldn't connect to server",
    "dial tcp: lookup",
];
/// After these stands a host, in the words of curl, ssh, wget, psql, apt, node, ping, Go and the like.
const BEFORE_HOST: [&str; 9] = [
    "resolve host: ",
    "resolve hostname ",
    "host address ",
    "host name ",
    "resolving ",
    "EAI_AGAIN ",
    "connect to ",
    "/dev/tcp/",
    "lookup ",
];
/// Programs that fetch from where they are configured to.
const FETCHING: [&str; 17] = [
    "pip", "pip3", "uv", "npm", "npx", "yarn", "pnpm", "cargo", "go", "gem", "apt", "apt-get", "conda",
    "composer", "mvn", "gradle", "git",
];

/// Programs that fetch from where they are told to.
const BY_URL: [&str; 2] = ["curl", "wget"];

/// The hint for a line that tells of the network.
pub(super) fn explain(failure: &Failure<'_>, line: &str) -> Option<Hint> {
    let lower = line.to_lowercase();
    if !has_no_way_out(failure) || !WORDS.iter().any(|words| lower.contains(words)) {
        return None;
    }
    let text = &failure.ran.line;
    let told =
        host_told(line).or_else(|| hosts(line).into_iter().next()).or_else(|| hosts(text).into_iter().next());
    let object = match told {
        Some(host) if is_local(&host) => return None,
        Some(host) => host,
        None => format!("what `{}` fetches from", FETCHING.iter().find(|name| failure.runs(name))?),
    };
    Some(refused(failure, &object))
}

/// The hint for a command that was ended as it took too long: many programs try again for minutes, and say nothing
/// before they give up. That it tried at all the kernel has counted.
pub(super) fn explain_late(failure: &Failure<'_>, complaints: &[String]) -> Option<Hint> {
    let silent = || {
        let text = &failure.ran.line;
        let fetching = FETCHING.iter().chain(&BY_URL).find(|name| failure.runs(name))?;
        let host = hosts(text).into_iter().find(|host| !is_local(host));
        let object = host.unwrap_or_else(|| format!("what `{fetching}` fetches from"));
        (failure.outcome.unrouted && has_no_way_out(failure)).then(|| refused(failure, &object))
    };
    complaints.iter().find_map(|line| explain(failure, line)).or_else(silent)
}

/// The hint for a program that says it by its exit status (curl(1), EXIT CODES; wget(1), EXIT STATUS).
pub(super) fn explain_silent(failure: &Failure<'_>) -> Option<Hint> {
    let quiet = match failure.outcome.exit_code? {
        6 | 7 => failure.runs("curl"),
        4 => failure.runs("wget"),
        _ => false,
    };
    let host = hosts(&failure.ran.line).into_iter().next().filter(|host| !is_local(host));
    (quiet && has_no_way_out(failure)).then(|| host.map(|host| refused(failure, &host)))?
}

fn has_no_way_out(failure: &Failure<'_>) -> bool {
    let enforced = &failure.outcome.enforced;
    enforced.network != NetworkMode::Host && enforced.namespaces.contains(&NamespaceName::Net)
}

fn refused(failure: &Failure<'_>, object: &str) -> Hint {
    let (name, door) = (&failure.asked.profile.name, failure.asked.door);
    let only = if failure.asked.profile.services.is_empty() { "its own loopback" } else { "its services" };
    let what = format!("{object} cannot be reached: profile `{name}` has no network but {only}");
    let ports = if failure.asked.profile.network == NetworkMode::Services {
        format!("for a port of this host name it in profiles.{name}.services")
    } else {
        "or to \"services\" for ports of this host".to_owned()
    };
    let remedy = format!(
        "name a profile with a network ({}), or set profiles.{name}.network to \"host\", {ports}",
        door.profile()
    );
    hint("network", what, remedy)
}

/// The host that a line names in words.
fn host_told(line: &str) -> Option<String> {
    BEFORE_HOST.iter().find_map(|words| {
        let (_, rest) = line.split_once(words)?;
        host_at_start(rest)
    })
}

fn host_at_start(text: &str) -> Option<String> {
    let text = text.trim_start_matches(|c: char| c.is_whitespace() || "'\"‘“`(".contains(c));
    if let Some((bracketed, _)) = text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        return Some(bracketed.to_owned());
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && !".-_:".contains(c)).unwrap_or(text.len());
    let word = &text[..end];
    // A port may follow, unless it is an address with colons of its own.
    let word = if word.parse::<IpAddr>().is_ok() { word } else { word.split(':').next().unwrap_or(word) };
    let word = word.trim_end_matches('.');
    (!word.is_empty() && word != "host").then(|| word.to_owned())
}

/// Hosts of URLs, of `user@host`, and addresses in a text.
fn hosts(text: &str) -> Vec<String> {
    let url = |(at, found): (usize, &str)| {
        let authority = &text[at + found.len()..];
        let end = authority
            .find(|c: char| c.is_whitespace() || "\\/'\"?#)>".contains(c))
            .unwrap_or(authority.len());
        let authority = &authority[..end];
        host_at_start(authority.rsplit_once('@').map_or(authority, |(_, host)| host))
    };
    let mut found: Vec<_> = text.match_indices("://").filter_map(url).collect();
    let breaks = |c: char| c.is_whitespace() || "\\'\"(),;=<>|&[]".contains(c);
    for word in text.split(breaks).filter(|word| !word.contains("://")) {
        let bare = word.trim_matches(['/', '.', ':']);
        if let Some((_, host)) = word.split_once('@') {
            found.extend(host_at_start(host).filter(|host| host.contains('.')));
        } else if bare.parse::<IpAddr>().is_ok() || is_local(bare) {
            found.push(bare.to_owned());
        } else if is_domain(bare.split([':', '/']).next().unwrap_or(bare)) {
            found.extend(host_at_start(bare));
        }
    }
    found
}

/// Whether a word looks like the name of a host on the Internet; such that no file is likely to have it.
fn is_domain(word: &str) -> bool {
    let ends = [".com", ".org", ".net", ".io", ".dev", ".example", ".test", ".invalid"];
    ends.iter().any(|end| word.ends_with(end))
        && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '.' || c == '-')
}

/// The sandbox itself.
fn is_local(host: &str) -> bool {
    let host = host.to_lowercase();
    let address = host.parse::<IpAddr>();
    host == "localhost"
        || host.ends_with(".localhost")
        || address.is_ok_and(|address| address.is_loopback() || address.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_found_in_every_program_s_words() {
        for (line, expected) in [
            ("curl: (6) Could not resolve host: example.com", "example.com"),
            ("curl: (7) Failed to connect to 1.1.1.1 port 80 after 13 ms", "1.1.1.1"),
            ("curl: (7) Failed to connect to ::1 port 80", "::1"),
            ("ssh: Could not resolve hostname example.com: Temporary failure", "example.com"),
            ("wget: unable to resolve host address ‘example.com’", "example.com"),
            ("could not translate host name \"db.example.com\" to address", "db.example.com"),
            ("Temporary failure resolving 'deb.debian.org'", "deb.debian.org"),
            ("Error: getaddrinfo EAI_AGAIN example.com", "example.com"),
            ("bash: line 1: /dev/tcp/1.1.1.1/80: Network is unreachable", "1.1.1.1"),
            ("dial tcp: lookup example.com: Temporary failure", "example.com"),
        ] {
            assert_eq!(host_told(line).as_deref(), Some(expected), "{line}");
        }
        for (text, expected) in [
            ("u.urlopen(\"http://example.com\")", &["example.com"][..]),
            ("git clone https://me:x@git.example.com:8443/a", &["git.example.com"]),
            ("create_connection((\"8.8.8.8\",53))", &["8.8.8.8"]),
            ("create_connection((\\\"192.0.2.1\\\",53))", &["192.0.2.1"]),
            ("get(\\\"http://example.com\\\")", &["example.com"]),
            ("curl http://[::1]:80/", &["::1"]),
            ("scp f me@host.example.org:/x", &["host.example.org"]),
            ("connect((\"localhost\", 1))", &["localhost"]),
            ("python3.11 setup.py requests.txt", &[]),
        ] {
            assert_eq!(hosts(text), expected, "{text}");
        }
    }

    #[test]
    fn the_loopback_is_the_sandbox_itself() {
        for local in ["localhost", "LOCALHOST", "a.localhost", "127.0.0.1", "127.9.9.9", "::1", "0.0.0.0"] {
            assert!(is_local(local), "{local}");
        }
        assert!(!is_local("localhost.example.com") && !is_local("10.0.0.1"));
    }
}
