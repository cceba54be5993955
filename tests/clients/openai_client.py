"""Does OpenAI's own Python client work against the server?

Needs `pip install -r requirements.txt` and a running server: BASE_URL (default http://127.0.0.1:8080/v1).
Prints one line for each check and exits with 1 at the first deviation.
"""

import os
import sys

import openai

BASE_URL = os.environ.get("BASE_URL", "http://127.0.0.1:8080/v1")
QUESTION = [{"role": "user", "content": "Count from one to five in words."}]


class Deviation(Exception):
    """The server did something that the client's users would not expect."""


def check(name, holds, seen):
    """Prints a check and stops when it fails."""
    print(f"{'ok  ' if holds else 'FAIL'} {name}: {seen}")
    if not holds:
        raise Deviation(name)


def models(client):
    listed = client.models.list().data
    check("models are listed", len(listed) >= 1 and listed[0].object == "model", [model.id for model in listed])
    model = listed[0].id
    check("a model is found by its id", client.models.retrieve(model).id == model, model)
    return model


def whole(client, model):
    reply = client.chat.completions.create(model=model, messages=QUESTION, max_tokens=24, temperature=0)
    choice, usage = reply.choices[0], reply.usage
    check("a reply has text", bool(choice.message.content), repr(choice.message.content))
    check("it is the assistant's", choice.message.role == "assistant", choice.message.role)
    check("it says why it ended", choice.finish_reason in ("stop", "length"), choice.finish_reason)
    check("its tokens add up", usage.total_tokens == usage.prompt_tokens + usage.completion_tokens, usage.total_tokens)
    check("the limit held", usage.completion_tokens <= 24, usage.completion_tokens)
    again = client.chat.completions.create(model=model, messages=QUESTION, max_tokens=24, temperature=0)
    check("greedy replies repeat", again.choices[0].message.content == choice.message.content, "same text")
    return choice.message.content


def streamed(client, model, expected):
    stream = client.chat.completions.create(
        model=model, messages=QUESTION, max_tokens=24, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    check("the stream has the same text", text == expected, repr(text))
    check("it opens with a role", chunks[0].choices[0].delta.role == "assistant", chunks[0].choices[0].delta.role)
    reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    check("one chunk says why it ended", len([one for one in reasons if one]) == 1 and reasons[-1], reasons[-1])
    check("usage comes last, without choices", chunks[-1].usage is not None and not chunks[-1].choices, chunks[-1].usage)
    check("usage comes once", sum(chunk.usage is not None for chunk in chunks) == 1, "once")
    plain = client.chat.completions.create(model=model, messages=QUESTION, max_tokens=4, stream=True)
    check("no usage unless asked for", all(chunk.usage is None for chunk in plain), "none")


def stops(client, model, text):
    """Takes a string out of the middle of the known reply: with it as stop string the reply ends before it."""
    stop = text[len(text) // 2 : len(text) // 2 + 2]
    for given in (stop, ["\u2603\u2603", stop]):
        reply = client.chat.completions.create(model=model, messages=QUESTION, max_tokens=24, temperature=0, stop=given)
        content = reply.choices[0].message.content
        check(f"stop {given!r} holds", content == text[: text.index(stop)], repr(content))
        check("and is the reason", reply.choices[0].finish_reason == "stop", reply.choices[0].finish_reason)


def leaves(client, model):
    """A client that leaves a stream does not break the next one."""
    with client.chat.completions.create(model=model, messages=QUESTION, max_tokens=64, stream=True) as stream:
        next(iter(stream))
    reply = client.chat.completions.create(model=model, messages=QUESTION, max_tokens=2)
    check("a stream can be left", reply.usage.completion_tokens <= 2, "the next request runs")


def refused(client, model):
    def failure(kind, **more):
        try:
            client.chat.completions.create(**{"model": model, "messages": QUESTION, **more})
        except kind as error:
            return error
        raise Deviation(f"{more} was not refused with {kind.__name__}")

    error = failure(openai.NotFoundError, model="no-such-model")
    check("an unknown model is a 404", error.code == "model_not_found" and error.param == "model", error.message)
    error = failure(openai.BadRequestError, messages=[])
    check("no messages is a 400", error.type == "invalid_request_error", error.message)
    error = failure(openai.BadRequestError, temperature=7)
    check("a wild temperature is a 400", error.param == "temperature", error.message)
    error = failure(openai.BadRequestError, n=2)
    check("two replies are a 400", error.param == "n", error.message)


def main():
    client = openai.OpenAI(base_url=BASE_URL, api_key="none", max_retries=0, timeout=120)
    try:
        model = models(client)
        text = whole(client, model)
        streamed(client, model, text)
        stops(client, model, text)
        leaves(client, model)
        refused(client, model)
    except Deviation as deviation:
        sys.exit(f"deviation: {deviation}")
    print(f"openai {openai.__version__}: every check passed against {BASE_URL}")


if __name__ == "__main__":
    main()
