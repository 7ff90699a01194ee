#!/usr/bin/env python3
"""An MCP server over standard input and output: a notebook that lasts as long as its process."""

import json
import sys

TOOLS = [
    {
        "name": "add_note",
        "description": "Writes a note into the notebook.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    },
    {
        "name": "list_notes",
        "description": "Gives the notes that were written so far.",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
    },
]

notes = []


def call(name, arguments):
    if name == "add_note":
        notes.append(arguments["text"])
        return f"{len(notes)} notes"
    if name == "list_notes":
        return "\n".join(notes) or "no notes yet"
    raise KeyError(name)


def answer(method, params):
    if method == "initialize":
        return {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "notebook", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        text = call(params["name"], params.get("arguments", {}))
        return {"content": [{"type": "text", "text": text}]}
    if method == "ping":
        return {}
    raise KeyError(method)


print("notebook: ready", file=sys.stderr)
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    try:
        reply["result"] = answer(message["method"], message.get("params", {}))
    except KeyError as unknown:
        reply["error"] = {"code": -32601, "message": f"there is no {unknown}"}
    print(json.dumps(reply), flush=True)
