#!/usr/bin/env python3
"""The types of Cordon's executor socket and their bytes: docs/protocol.md as a program, its types word for word.

  wire.py encode TYPE     a line of JSON becomes the payload in hexadecimal
  wire.py decode TYPE     and the other way round

In Python a struct is a dict, an enum a variant's name or a pair (name, content); in JSON the pair is
{name: content}, and bytes are base64.
"""

import base64
import json
import re
import struct
import sys

TYPES = """
enum Request
  0 Hello     { version: u32, client: string }
  1 Run       RunRequest
  2 Stdin     bytes
  3 StdinEnd
  4 Ps
  5 Kill      { id: string }
  6 Profiles
  7 Doctor
  8 Workspaces
  9 DeleteWorkspace   { name: string }

struct RunRequest
  profile     string?
  action      Action
  cwd         string?
  env         [(string, string)]
  stdin       bool
  stream      bool
  limits      LimitRequest
  workspace   string?
  files       [FileIn]
  collect     [string]

struct FileIn
  path      string
  content   bytes
  mode      u32?

enum Action
  0 Argv      [string]
  1 Line      string
  2 Write     { path: string, mode: u32? }
  3 Read      { path: string }
  4 Measure
  5 Nothing

struct LimitRequest
  wall_ms         u64?
  cpu_time_ms     u64?
  memory_bytes    u64?
  pids            u64?
  cpu_percent     u64?
  output_bytes    u64?
  capture_bytes   u64?

enum Event
  0 Started   { id: string }
  1 Stdout    bytes
  2 Stderr    bytes
  3 Exited    ExitReport
  4 Refused   Refusal
  5 Jobs      [JobInfo]
  6 Killed    { id: string }
  7 Profiles  [ProfileInfo]
  8 Doctor    [LayerReport]
  9 Queued    { position: u32 }
  10 File     CollectedFile
  11 Workspaces         [WorkspaceInfo]
  12 WorkspaceDeleted   { name: string }

struct CollectedFile
  path        string
  mode        u32
  size        u64
  content     bytes
  truncated   bool
  problem     string?

struct WorkspaceInfo
  name       string
  modified   u64

struct ExitReport
  id                  string
  ended_by            EndedBy
  exit_code           i32?
  signal              string?
  step                string?
  stdout              string?
  stderr              string?
  stdout_encoding     Encoding
  stderr_encoding     Encoding
  stdout_bytes        u64
  stderr_bytes        u64
  stdout_truncated    bool
  stderr_truncated    bool
  wall_ms             f64
  cpu_ms              f64
  peak_memory_bytes   u64?
  limits_hit          [LimitName]
  enforced            Enforced
  services            [ServiceUse]
  hint                Hint?

enum EndedBy
  0 exit
  1 signal
  2 wall_timeout
  3 cpu_timeout
  4 out_of_memory
  5 output_limit
  6 disk_limit
  7 cancelled
  8 launch_failed

enum Encoding
  0 utf-8
  1 base64

enum LimitName
  0 memory
  1 pids
  2 cpu_time
  3 wall
  4 output
  5 disk
  6 file_size

struct Enforced
  uid             u32
  cgroup          CgroupMode
  landlock_abi    u32
  seccomp         bool
  namespaces      [NamespaceName]
  network         NetworkMode
  capabilities    [string]

enum CgroupMode
  0 v2
  1 sampled
  2 none

enum NamespaceName
  0 pid
  1 mount
  2 ipc
  3 uts
  4 net

enum NetworkMode
  0 none
  1 services
  2 host

struct ServiceUse
  port          u32
  connections   u64
  refused       u64

struct Hint
  layer     string
  what      string
  remedy    string

struct Refusal
  code      RefusalCode
  message   string
  hint      string?

enum RefusalCode
  0 bad_request
  1 bad_frame
  2 bad_version
  3 out_of_order
  4 unknown_profile
  5 limit_refused
  6 not_allowed
  7 not_found
  8 busy
  9 timeout
  10 shutting_down
  11 internal

struct JobInfo
  id        string
  profile   string
  command   string
  state     string
  position  u32?
  age_ms    u64

struct ProfileInfo
  name          string
  shell         string
  network       string
  services      [u32]
  read          [string]
  write         [string]
  execute       [string]
  limits        [LimitInfo]
  concurrency   u32

struct LimitInfo
  name      string
  default   string
  ceiling   string

struct LayerReport
  layer     string
  health    Health
  detail    string
  remedy    string?

enum Health
  0 ok
  1 lesser
  2 missing
"""


class ProtocolError(Exception):
    """Bytes that are no value of the expected type."""


NUMBERS = {"u32": "<I", "u64": "<Q", "i32": "<i", "f64": "<d"}


def parse_types(text):
    """Name of a type -> its fields [(name, type)], or its variants {number: (name, type or none)}."""
    types = {}
    for block in text.strip().split("\n\n"):
        head, *lines = block.split("\n")
        kind, name = head.split()
        rows = [line.split(None, 1 if kind == "struct" else 2) for line in lines]
        if kind == "struct":
            types[name] = [(field, of.strip()) for field, of in rows]
        else:
            types[name] = {int(row[0]): (row[1], row[2].strip() if len(row) > 2 else None) for row in rows}
    return types


TABLE = parse_types(TYPES)


def fields_of(of):
    """The fields of a struct type, also of one written in braces; none for other types."""
    if of.startswith("{"):
        return re.findall(r"(\w+): ([^,}]+?)\s*[,}]", of)
    fields = TABLE.get(of)
    return fields if isinstance(fields, list) else None


def encode(of, value):
    """The bytes of a value."""
    if of.endswith("?"):
        return b"\0" if value is None else b"\1" + encode(of[:-1], value)
    if of.startswith("["):
        return struct.pack("<Q", len(value)) + b"".join(encode(of[1:-1], item) for item in value)
    if of.startswith("("):
        return b"".join(encode(part, item) for part, item in zip(of[1:-1].split(", "), value))
    if of in NUMBERS:
        return struct.pack(NUMBERS[of], value)
    if of == "bool":
        return b"\1" if value else b"\0"
    if of in ("string", "bytes"):
        data = value.encode() if of == "string" else value
        return struct.pack("<Q", len(data)) + data
    fields = fields_of(of)
    if fields is not None:
        return b"".join(encode(kind, value[name]) for name, kind in fields)
    # An enum: the variant's name, or {name: content}.
    name, content = value if isinstance(value, tuple) else (value, None)
    for number, (variant, kind) in TABLE[of].items():
        if variant == name:
            return struct.pack("<I", number) + (encode(kind, content) if kind else b"")
    raise ProtocolError(f"{of} has no variant {name}")


class Payload:
    """Bytes that are taken from the front."""

    def __init__(self, data):
        self.data = data
        self.at = 0

    def take(self, count):
        if count > len(self.data) - self.at:
            raise ProtocolError("the payload is too short")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, form):
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def flag(self):
        byte = self.take(1)[0]
        if byte > 1:
            raise ProtocolError(f"{byte} is neither 0 nor 1")
        return byte == 1


def decode_from(of, payload):
    """The value at the front of a payload. Of an enum: the variant's name, or (name, content)."""
    if of.endswith("?"):
        return decode_from(of[:-1], payload) if payload.flag() else None
    if of.startswith("["):
        return [decode_from(of[1:-1], payload) for _ in range(payload.number("<Q"))]
    if of.startswith("("):
        return [decode_from(part, payload) for part in of[1:-1].split(", ")]
    if of in NUMBERS:
        return payload.number(NUMBERS[of])
    if of == "bool":
        return payload.flag()
    if of in ("string", "bytes"):
        data = payload.take(payload.number("<Q"))
        return data.decode() if of == "string" else data
    fields = fields_of(of)
    if fields is not None:
        return {name: decode_from(kind, payload) for name, kind in fields}
    number = payload.number("<I")
    if number not in TABLE[of]:
        raise ProtocolError(f"{of} has no variant {number}")
    name, kind = TABLE[of][number]
    return (name, decode_from(kind, payload)) if kind else name


def decode(of, data):
    """The value in these bytes, all of which it must take."""
    payload = Payload(data)
    value = decode_from(of, payload)
    if payload.at != len(data):
        raise ProtocolError(f"{len(data) - payload.at} bytes are left over")
    return value


def to_json(value):
    """A value as JSON has it."""
    if isinstance(value, tuple):
        return {value[0]: to_json(value[1])}
    if isinstance(value, dict):
        return {name: to_json(item) for name, item in value.items()}
    if isinstance(value, list):
        return [to_json(item) for item in value]
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def from_json(of, value):
    """The value of a type that `to_json` has written."""
    if value is None:
        return None
    of = of.removesuffix("?")
    if of.startswith("["):
        return [from_json(of[1:-1], item) for item in value]
    if of == "bytes":
        return base64.b64decode(value)
    fields = fields_of(of)
    if fields is not None:
        return {name: from_json(kind, value[name]) for name, kind in fields}
    if of in TABLE and isinstance(value, dict):
        ((name, content),) = value.items()
        kinds = dict(TABLE[of].values())
        return (name, from_json(kinds[name], content))
    return value


def main(words):
    match words:
        case ["encode", of]:
            for line in sys.stdin:
                print(encode(of, from_json(of, json.loads(line))).hex())
        case ["decode", of]:
            for line in sys.stdin:
                print(json.dumps(to_json(decode(of, bytes.fromhex(line))), ensure_ascii=False))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
