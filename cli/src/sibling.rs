//! The other programs of the same build or package: they lie beside this one.

use crate::failure::Failure;
use std::{env, path::PathBuf};

/// The program of that name beside this one or else in `PATH`, where it is only asked something.
pub(crate) fn anywhere(name: &str) -> Result<PathBuf, Failure> {
    path(name).or_else(|failure| {
        let directories = env::var_os("PATH").unwrap_or_default();
        let candidates = env::split_paths(&directories).filter(|directory| directory.is_absolute());
        candidates.map(|directory| directory.join(name)).find(|path| path.is_file()).ok_or(failure)
    })
}

/// The path of the program of that name, which must be there.
pub(crate) fn path(name: &str) -> Result<PathBuf, Failure> {
    let what = format!("finding {name}");
    let next = "build the whole workspace (cargo build --release), or install the whole package";
    let own = env::current_exe().map_err(|e| Failure::new(&what, e, next))?;
    let path = own.with_file_name(name);
    if path.is_file() {
        Ok(path)
    } else {
        Err(Failure::new(&what, format!("{} is not there", path.display()), next))
    }
}
