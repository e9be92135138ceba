//! Row 7: what other processes have in their environments and on their command lines.

use super::{
    Probe,
    acts::{self, Neighbour, inside, outside},
    probe,
};
use crate::harness::{daemon, shared};

pub(super) const PROBES: &[Probe] = &[Probe {
    row: 7,
    test: "escape::r07_secrets::other_processes_tell_no_secret",
    tried: "reading environ, cmdline, maps and auxv of every process and thread in /proc, and of 1 and the parent by number",
    control: "the same walk outside finds what the daemons, and another command, have in their environments",
    closed_by: "namespaces: pid, and a /proc that shows one's own user's processes alone",
}];

#[test]
fn other_processes_tell_no_secret() {
    let _verdict = probe!();
    let _neighbour = Neighbour::start(shared(), "print()");
    let code = "import glob\nmine = str(os.getpid())\nfound = b''\n\
                for p in {*os.listdir('/proc'), '1', str(os.getppid()), 'self/../1', 'thread-self/../../../1'}:\n  \
                if not p[-1].isdigit() or p == mine: continue\n  \
                for f in ['environ', 'cmdline', 'maps', 'auxv', *glob.glob(f'/proc/{p}/task/*/environ')]:\n    \
                try: found += open(os.path.join('/proc', p, f), 'rb').read()\n    except OSError: pass\n\
                sys.stdout.buffer.write(found.replace(b'\\0', b'\\n'))";
    let secrets = [daemon::SECRET, acts::SECRET];
    let seen = inside(code);
    assert_eq!(seen, "", "nothing of anybody");
    // Not as text: what all processes of the host have need not be UTF-8.
    let outside = outside(&code.replace(
        "sys.stdout.buffer.write(found.replace(b'\\0', b'\\n'))",
        &format!("print([s for s in {secrets:?} if s.encode() in found])"),
    ));
    assert_eq!(outside.matches('\'').count(), 4, "the control: {outside}");
    assert!(!seen.contains(&shared().token));
}
