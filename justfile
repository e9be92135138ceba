# Short names for the commands of the README and of CONTRIBUTING.md.

# What needs no argument
default:
    @just --list

# Build everything and start it (root)
up: build
    target/release/cordon up

# The programs as they are shipped
build:
    cargo build --release

# Every test (root)
test:
    cargo test --workspace

# The end-to-end tests in a guest with systemd and every cgroup controller (root)
vm *ARGS:
    tests/vm/run {{ARGS}}

# The Debian package
deb *VERSION:
    packaging/build {{VERSION}}

# The package installed and used in a guest (root)
vm-package *ARGS:
    tests/vm/package {{ARGS}}

# Form and dependencies
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    cargo clippy -p cordon-executor --all-targets --features fault-injection -- -D warnings
    cargo deny check bans licenses sources

# What one command costs through each door, beside a bare spawn (root)
bench ROUNDS="300": build
    target/release/bench {{ROUNDS}}

# Many runs of every kind, and whether anything is left over or has grown (root)
soak RUNS="20000": build
    target/release/soak {{RUNS}}

# The same with what is no request: changed frames and HTTP, dropped connections (root)
storm RUNS="1000000": build
    target/release/soak --malformed {{RUNS}}
    CORDON_STORM={{RUNS}} cargo test -p cordon-tests --test e2e hostile::storm
