#!/usr/bin/env python3
"""A complete client of Cordon's executor socket, with nothing but the standard library and wire.py beside it.

  client.py SOCKET run [OPTIONS] -- PROGRAM ARGUMENT...
  client.py SOCKET run [OPTIONS] -c LINE
  client.py SOCKET ps | profiles | doctor | workspaces | kill ID | delete-workspace NAME

`run` prints the exit report, with what was collected as `collected`; with --events it prints every event. Ctrl-C
ends the command. Bytes are base64. The exit status is 0 for an answer, whatever ended the command, and 1 for a
refusal.
"""

import argparse
import json
import os
import signal
import socket
import struct
import sys
import threading

from wire import TABLE, ProtocolError, decode, encode, to_json

VERSION = 1
CHUNK = 64 << 10
EVENT_MAX = 32 << 20


class Connection:
    """One connection: a hello and one request, then events to the last."""

    def __init__(self, path, request):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(path)
        self.send(("Hello", {"version": VERSION, "client": "client.py"}))
        self.send(request)

    def send(self, request):
        """Sends a frame. When the executor has closed, what it said is still there to be read."""
        payload = encode("Request", request)
        try:
            self.socket.sendall(struct.pack("<I", len(payload)) + payload)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def send_stdin(self, stream):
        """Sends a stream and its end. To be called beside the reading of events, not before it."""
        while piece := stream.read1(CHUNK):
            self.send(("Stdin", piece))
        self.send("StdinEnd")

    def cancel(self):
        """Ends the command; its report can still be read."""
        self.socket.shutdown(socket.SHUT_WR)

    def read(self, count, may_end=False):
        data = bytearray()
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                if may_end and not data:
                    return None
                raise ProtocolError("the connection ended inside a frame")
            data += piece
        return bytes(data)

    def events(self):
        """Every event up to the end of the connection."""
        while (header := self.read(4, may_end=True)) is not None:
            length = struct.unpack("<I", header)[0]
            if length > EVENT_MAX:
                raise ProtocolError(f"a frame of {length} bytes")
            yield decode("Event", self.read(length))


def show(value):
    print(json.dumps(to_json(value), ensure_ascii=False), flush=True)


def arguments():
    parser = argparse.ArgumentParser(prog="client.py SOCKET run")
    parser.add_argument("-c", dest="line")
    parser.add_argument("--profile")
    parser.add_argument("--cwd")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--workspace", metavar="NAME")
    parser.add_argument("--file", action="append", default=[], metavar="PATH=LOCAL", help="put it there first")
    parser.add_argument("--collect", action="append", default=[], metavar="GLOB", help="send these in the end")
    parser.add_argument("--stdin", action="store_true", help="pass standard input on")
    parser.add_argument("--events", action="store_true", help="output as it comes")
    for name, _ in TABLE["LimitRequest"]:
        parser.add_argument("--" + name.replace("_", "-"), type=int)
    parser.add_argument("argv", nargs="*")
    return parser


def file_in(entry):
    """A file that goes along, with its permission bits."""
    path, local = entry.split("=", 1)
    with open(local, "rb") as file:
        return {"path": path, "content": file.read(), "mode": os.fstat(file.fileno()).st_mode & 0o777}


def run(path, words):
    args = arguments().parse_args(words)
    request = {
        "profile": args.profile,
        "action": ("Argv", args.argv) if args.line is None else ("Line", args.line),
        "cwd": args.cwd,
        "env": [entry.split("=", 1) for entry in args.env],
        "stdin": args.stdin,
        "stream": args.events,
        "limits": {name: getattr(args, name) for name, _ in TABLE["LimitRequest"]},
        "workspace": args.workspace,
        "files": [file_in(entry) for entry in args.file],
        "collect": args.collect,
    }
    # The command may run before there is somebody to cancel it.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    connection = Connection(path, ("Run", request))
    signal.signal(signal.SIGINT, lambda *_: connection.cancel())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    if args.stdin:
        threading.Thread(target=connection.send_stdin, args=[sys.stdin.buffer], daemon=True).start()
    collected = []
    for kind, content in connection.events():
        if kind == "File":
            collected.append(content)
        if kind == "Exited" and not args.events:
            # As `cordon run --json` has it: these two where there is something to say.
            if not content["services"]:
                del content["services"]
            if args.collect:
                content["collected"] = collected
        last = kind in ("Exited", "Refused")
        if args.events:
            show((kind, content))
        elif last:
            show(content)
        if last:
            return 1 if kind == "Refused" else 0
    raise ProtocolError("the connection ended without a report")


def ask(path, request):
    for kind, content in Connection(path, request).events():
        show(content)
        return 1 if kind == "Refused" else 0
    raise ProtocolError("the connection ended without an answer")


def main(words):
    match words:
        case [path, "run", *rest]:
            return run(path, rest)
        case [path, "kill", job]:
            return ask(path, ("Kill", {"id": job}))
        case [path, "delete-workspace", name]:
            return ask(path, ("DeleteWorkspace", {"name": name}))
        case [path, "ps" | "profiles" | "doctor" | "workspaces" as question]:
            return ask(path, question.capitalize())
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
