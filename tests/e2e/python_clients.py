#!/usr/bin/env python3
"""The official Python clients, `openai` and `anthropic`, against `strata serve` with the demo model.

    STRATA_PROGRAM=build/release/strata .venv/bin/python tests/e2e/python_clients.py
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import anthropic
import openai

PROGRAM = os.environ.get("STRATA_PROGRAM", "build/release/strata")
CAPITAL = [{"role": "user", "content": "What is the capital of Netherlands?"}]
QUICK = {"model": "any", "temperature": 0, "max_tokens": 64}
NO_THINKING = {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "city name"}},
    "required": ["city"],
}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start():
    port = free_port()
    process = subprocess.Popen([PROGRAM, "serve", "--port", str(port)],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               # What it keeps by itself goes nowhere: it stays in memory.
                               env={**os.environ, "XDG_DATA_HOME": os.devnull})
    url = f"http://127.0.0.1:{port}"
    for _ in range(600):
        try:
            if urllib.request.urlopen(f"{url}/health", timeout=5).status == 200:
                return process, url
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.1)
    process.kill()
    sys.exit("python_clients: strata serve did not start")


def chat_openai(client):
    answer = client.chat.completions.create(messages=CAPITAL, **QUICK, **NO_THINKING)
    assert "Amsterdam" in answer.choices[0].message.content
    pieces = []
    usage = None
    for chunk in client.chat.completions.create(messages=CAPITAL, stream=True,
                                                stream_options={"include_usage": True}, **QUICK,
                                                **NO_THINKING):
        usage = chunk.usage or usage
        if chunk.choices:
            pieces.append(chunk.choices[0].delta.content or "")
    assert "".join(pieces) == answer.choices[0].message.content
    assert usage.completion_tokens == answer.usage.completion_tokens


def tool_openai(client):
    tools = [{"type": "function", "function": {
        "name": "get_weather", "description": "Get the current weather of a city.",
        "parameters": WEATHER}}]
    answer = client.chat.completions.create(
        messages=[{"role": "user", "content": "Weather for Oslo, please."}], tools=tools, **QUICK,
        **NO_THINKING)
    call = answer.choices[0].message.tool_calls[0]
    assert json.loads(call.function.arguments)["city"] == "Oslo"


def logprobs_openai(client):
    answer = client.chat.completions.create(messages=CAPITAL, logprobs=True, top_logprobs=3,
                                            **QUICK, **NO_THINKING)
    for item in answer.choices[0].logprobs.content:
        assert item.token == item.top_logprobs[0].token


def completion_openai(client):
    scored = client.completions.create(model="any", prompt="The sky is blue", echo=True,
                                       logprobs=1, max_tokens=0)
    assert "".join(scored.choices[0].logprobs.tokens) == "The sky is blue"


def response_openai(client):
    response = client.responses.create(model="any", input=CAPITAL[0]["content"], temperature=0,
                                       max_output_tokens=64, reasoning={"effort": "none"})
    assert "Amsterdam" in response.output_text
    assert client.responses.retrieve(response.id).output_text == response.output_text
    kinds = [event.type for event in client.responses.create(
        model="any", input="Hello", stream=True, temperature=0, max_output_tokens=64)]
    assert kinds[0] == "response.created"
    assert kinds[-1] in ("response.completed", "response.incomplete")


def errors_openai(client):
    try:
        client.chat.completions.create(messages=[], **QUICK)
    except openai.BadRequestError as error:
        assert error.param == "messages"
    else:
        raise AssertionError("an empty conversation was accepted")


def message_anthropic(client):
    message = client.messages.create(messages=CAPITAL, thinking={"type": "disabled"}, **QUICK_A)
    assert "Amsterdam" in message.content[0].text
    with client.messages.stream(messages=CAPITAL, thinking={"type": "disabled"},
                                **QUICK_A) as stream:
        assert "".join(stream.text_stream) == message.content[0].text
        assert stream.get_final_message().usage.output_tokens == message.usage.output_tokens
    counted = client.messages.count_tokens(model="any", messages=CAPITAL,
                                           thinking={"type": "disabled"})
    assert counted.input_tokens == message.usage.input_tokens


def tool_anthropic(client):
    tools = [{"name": "get_weather", "description": "Get the current weather of a city.",
              "input_schema": WEATHER}]
    message = client.messages.create(
        messages=[{"role": "user", "content": "Weather for Oslo, please."}], tools=tools,
        thinking={"type": "disabled"}, **QUICK_A)
    use = next(block for block in message.content if block.type == "tool_use")
    assert message.stop_reason == "tool_use" and use.input["city"] == "Oslo"


QUICK_A = {"model": "any", "max_tokens": 64, "extra_body": {"temperature": 0}}


def main():
    process, url = start()
    failed = 0
    clients = {
        "openai": openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0),
        "anthropic": anthropic.Anthropic(base_url=url, api_key="none", max_retries=0),
    }
    tests = [chat_openai, tool_openai, logprobs_openai, completion_openai, response_openai,
             errors_openai, message_anthropic, tool_anthropic]
    for test in tests:
        name, library = test.__name__.rsplit("_", 1)
        try:
            test(clients[library])
            print(f"ok    {library}: {name}")
        except Exception as error:  # whatever a client throws is a failure of this test alone
            failed += 1
            print(f"FAIL  {library}: {name}: {error!r}")
    process.send_signal(signal.SIGTERM)
    try:
        code = process.wait(timeout=15)
    except subprocess.TimeoutExpired:
        process.kill()
        code = -1
    if code != 0:
        failed += 1
        print(f"FAIL  the server ended with {code}")
    print(f"{len(tests) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


main()
