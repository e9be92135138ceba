//! What there is to say of an audit trail that cannot be written: to whoever's command did not run, and to `cordon doctor`.

use crate::sandbox::steps::{GONE, OWN_WORDS};
use cordon_protocol::{Health, LayerReport};
use nix::errno::Errno;
use std::path::Path;

/// What to do about it.
pub fn remedy(errno: Errno) -> String {
    let act = match errno {
        Errno::ENOSPC | Errno::EDQUOT => "make room where the audit trail is",
        Errno::EROFS => "have root make the file system of the audit trail writable",
        Errno::ENOENT => "have root make the directory of the audit trail again",
        _ => "have root see to the audit trail",
    };
    format!(
        "{act}: nothing runs that cannot be written there first; the executor's log says when it is written again"
    )
}

/// Whether the trail at this path can be written, as a layer: without it nothing runs.
pub fn layer(trail: &Path, problem: Option<(Errno, &str)>) -> LayerReport {
    let trail = trail.display();
    let (health, detail, remedy) = match problem {
        None => (Health::Ok, format!("{trail} and the texts of commands beside it can be written"), None),
        Some((OWN_WORDS, detail)) => {
            let remedy = "have root see to the audit trail (`cordon audit verify` shows what was changed): the executor does not start \
                on one that ends otherwise than it did, nor write on in another file";
            (Health::Missing, format!("{trail} is not as it was written: {detail}"), Some(remedy.to_owned()))
        }
        Some((GONE, detail)) => {
            let remedy = "unless somebody has moved it away on purpose, it was removed: the log has marks of what was in it \
                (`audit head`; `cordon audit verify --anchors`), and copies may be elsewhere; the next line begins it anew";
            (Health::Missing, format!("{trail} {detail}"), Some(remedy.to_owned()))
        }
        Some((errno, detail)) => {
            (Health::Missing, format!("{trail} cannot be written: {detail}"), Some(remedy(errno)))
        }
    };
    LayerReport { layer: "audit".to_owned(), health, detail, remedy }
}
