"""Uses a server as a program with the Python SDK's client would, and prints what
it saw as one JSON object. Its argument is that of client.mjs."""

import asyncio
import json
import os
import sys
import urllib.request

import httpx2
import mcp_types as types
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

config = json.loads(sys.argv[1])
modern = config["revision"] >= "2026"
saw = {"progress": [], "asked": []}
changed = asyncio.Event()


async def answer(context, params):
    saw["asked"].append(params.message)
    return types.ElicitResult(action="accept", content={"name": "Ada", "check": True})


async def heard(message):
    if isinstance(message, types.ToolListChangedNotification) or isinstance(getattr(message, "root", None), types.ToolListChangedNotification):
        changed.set()


def text(result):
    return "\n".join(c.text for c in result.content if c.type == "text")


async def names(client):
    return [t.name for t in (await client.list_tools(cache_mode="refresh")).tools]


def publish():
    request = urllib.request.Request(config["api"], data=config["manifest"].encode(), method="POST",
                                     headers={"Content-Type": "application/json", "Authorization": "Bearer " + config["admin"]})
    with urllib.request.urlopen(request, timeout=60) as answered:
        answered.read()


async def watch_change(client):
    if not modern:
        await asyncio.to_thread(publish)
        await changed.wait()
        return
    async with client.listen(tools_list_changed=True) as told:
        await asyncio.to_thread(publish)
        async for _ in told:
            return


async def cancel(client):
    first = asyncio.Event()

    async def progress(done, total, message):
        first.set()

    call = asyncio.create_task(client.call_tool("everything__trigger-long-running-operation", {"duration": 20, "steps": 200}, progress_callback=progress))
    await first.wait()
    call.cancel()
    try:
        await call
        return "it was answered"
    except asyncio.CancelledError:
        return "given up: cancelled"


async def use(server):
    async def progress(done, total, message):
        saw["progress"].append(done)

    async with Client(server, mode="auto" if modern else "legacy", elicitation_callback=answer, message_handler=heard) as client:
        saw["revision"] = client.protocol_version
        saw["server"] = client.server_info.name if client.server_info else ""
        saw["tools"] = await names(client)
        saw["echo"] = text(await client.call_tool("everything__echo", {"message": "hello"}))
        saw["structured"] = (await client.call_tool("everything__get-structured-content", {"location": "Chicago"})).structured_content
        saw["long"] = text(await client.call_tool("everything__trigger-long-running-operation", {"duration": 0.4, "steps": 4}, progress_callback=progress))
        await watch_change(client)
        saw["after"] = await names(client)
        saw["elicited"] = text(await client.call_tool("everything__trigger-elicitation-request", {}))
        saw["cancelled"] = await cancel(client)
        saw["still"] = text(await client.call_tool("everything__echo", {"message": "still here"}))


async def main():
    if "command" in config:
        await use(StdioServerParameters(command=config["command"][0], args=config["command"][1:], env=dict(os.environ)))
    else:
        async with httpx2.AsyncClient(headers={"Authorization": "Bearer " + config["key"]}, timeout=httpx2.Timeout(60)) as http:
            await use(streamable_http_client(config["url"], http_client=http))
    print(json.dumps(saw))


asyncio.run(main())
