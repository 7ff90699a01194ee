"""Loads a server's tools with langchain-mcp-adapters, as an agent would, and prints
what it saw as one JSON object. Its argument is that of client.mjs."""

import asyncio
import json
import os
import sys

from langchain_mcp_adapters.client import MultiServerMCPClient

config = json.loads(sys.argv[1])


async def main():
    if "command" in config:
        connection = {"transport": "stdio", "command": config["command"][0], "args": config["command"][1:], "env": dict(os.environ)}
    else:
        connection = {"transport": "streamable_http", "url": config["url"], "headers": {"Authorization": "Bearer " + config["key"]}}
    client = MultiServerMCPClient({"toolkeep": connection})
    tools = {t.name: t for t in await client.get_tools()}
    echo = tools["everything__echo"]
    answers = await asyncio.gather(*(echo.ainvoke({"message": str(i)}) for i in range(5)))
    structured = await tools["everything__get-structured-content"].ainvoke(
        {"type": "tool_call", "id": "1", "name": "everything__get-structured-content", "args": {"location": "Chicago"}})
    try:
        refused = str(await echo.ainvoke({"message": 7}))
    except Exception as e:  # whatever the adapter makes of a refusal
        refused = f"{type(e).__name__}: {e}"
    print(json.dumps({
        "tools": sorted(tools), "schema": echo.args_schema, "echo": [str(a) for a in answers],
        "structured": structured.artifact, "refused": refused,
    }, default=str))


asyncio.run(main())
