//! The configuration file with every key, its default and what it means (`--default-config`).
//!
//! Defaults and bounds are those that the parser uses: what is shown is what an empty file gives.

use super::{BODY_MAX_BOUNDS, RawConfig, TIMEOUT_MAX_MS};
use crate::{http::body::AT_ONCE, memory::SMALL, stall::LEISURE};
use cordon_protocol::{
    Bytes, Millis,
    configuration::{Document, list, text},
    limits,
};

/// The file.
pub fn document() -> String {
    let raw = RawConfig::default();
    let mut document = Document::new(&[
        "Configuration of cordon-gateway: /etc/cordon/gateway.toml, or where --config says.",
        "Every key is here, commented out, with its default: uncomment what you change. It is read at start; an \
         unknown key is an error. `cordon config check FILE` tells whether it would be taken. Sizes are text in \
         bytes, or in K, M or G (of 1024); times are text in ms, s, m or h. The gateway's user must be able to read \
         the file, which has at most 1M.",
        "This is what `cordon-gateway --default-config` prints.",
    ]);
    let timeout = |what: &str| format!("{what} A time from \"1ms\" to \"{}\".", Millis(TIMEOUT_MAX_MS));
    document.key(
        "Address and port for HTTP. The environment variable PORT overrides the port; 0 is any free one. Where \
         systemd passes a listening TCP socket, that is used instead.",
        "listen",
        text(raw.listen),
    );
    document.key(
        "Whether `listen` may be an address that other machines reach. There is no TLS: put a proxy in front instead.",
        "allow_remote",
        raw.allow_remote,
    );
    document.key(
        "A Unix socket beside it, mode 0660: whoever may open it needs no token. An absolute path. There is none \
         unless this key is set. Where systemd passes one, as cordon-gateway.socket does, that is used instead; what \
         stands here is where it is.",
        "socket",
        text(limits::GATEWAY_SOCKET),
    );
    document.key("The executor's socket. An absolute path.", "executor", text(raw.executor.display()));
    document.key(
        &format!(
            "File with the token that TCP clients must show: {} or more plain characters, not to be reached by others \
             (mode 0640). An absolute path. `cordon-gateway --make-token FILE` makes one. Where systemd passes a credential \
             `token`, as cordon-gateway.service has it do, that is used instead.",
            crate::token::TOKEN_MIN
        ),
        "token_file",
        text(raw.token_file.display()),
    );
    document.key(
        "Names that are accepted in the Host header beside those of the loopback interface, as NAME or NAME:PORT: \
         those under which a proxy is reached.",
        "allowed_hosts",
        list(&raw.allowed_hosts),
    );
    document.key(
        "Origins of browsers that are accepted beside the gateway's own, as https://NAME or https://NAME:PORT.",
        "allowed_origins",
        list(&raw.allowed_origins),
    );
    let (least, most) = BODY_MAX_BOUNDS;
    document.key(
        &format!(
            "The longest request body; all at once have {AT_ONCE} times as much, and take about twice that of memory \
             while they are read. A size from \"{}\" to \"{}\".",
            Bytes(least),
            Bytes(most)
        ),
        "body_max",
        text(raw.body_max),
    );
    document.key(
        &timeout(
            &format!(
                "For the head of a request; so long a client may also send nothing, or let an answer lie, with a second \
                 more for each 64K that it takes of it; of an event stream it may take nothing {LEISURE} times as long, \
                 but not while an event of more than {} lies there, as a large file is.",
                Bytes(SMALL as u64)
            ),
        ),
        "header_timeout",
        text(raw.header_timeout),
    );
    document.key(&timeout("For the body of a request."), "read_timeout", text(raw.read_timeout));
    document.key(
        &timeout("How long running requests may still take after SIGTERM."),
        "shutdown_grace",
        text(raw.shutdown_grace),
    );
    document.key(
        &format!("Open connections of each listener, 1 to {}.", u16::MAX),
        "connections_max",
        raw.connections_max,
    );
    document.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use cordon_protocol::configuration::uncommented;
    use std::{collections::BTreeSet, path::Path};

    #[test]
    fn every_key_that_the_parser_knows_is_in_the_file_and_no_other() {
        let error = toml::from_str::<RawConfig>("x = 1").unwrap_err().to_string();
        let list = error.split("expected ").nth(1).unwrap();
        let known: BTreeSet<_> = list.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        let all: toml::Table = uncommented(&document()).parse().unwrap();
        assert_eq!(all.keys().cloned().collect::<BTreeSet<_>>(), known);
    }

    #[test]
    fn as_it_is_and_with_every_key_in_force_it_gives_the_defaults() {
        let load = |text: &str| Config::from_text(Path::new("t"), text).unwrap();
        let default = format!("{:?}", load(""));
        assert_eq!(format!("{:?}", load(&document())), default);
        // The one key without a default.
        let all = Config { socket: None, ..load(&uncommented(&document())) };
        assert_eq!(format!("{all:?}"), default);
    }
}
