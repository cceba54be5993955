"""Does OpenAI's own Python client work against the server?

Needs `pip install -r requirements.txt` and a running server: BASE_URL (default http://127.0.0.1:8080/v1).
Prints one line for each check and exits with 1 at the first deviation.
"""

import json
import os
import re
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


def probabilities(client, model, text):
    """The tokens of a reply, byte by byte, whole and streamed."""
    asked = {"model": model, "messages": QUESTION, "max_tokens": 24, "temperature": 0, "logprobs": True, "top_logprobs": 3}
    tokens = client.chat.completions.create(**asked).choices[0].logprobs.content
    check("probabilities cover the reply", bytes(b for token in tokens for b in token.bytes or []).decode() == text, len(tokens))
    check("they are logarithms", all(token.logprob <= 0 for token in tokens), tokens[0].logprob)
    check("three tokens stand in each place", all(len(token.top_logprobs) == 3 for token in tokens), 3)
    likeliest = all(token.top_logprobs[0].bytes == token.bytes for token in tokens)
    check("a greedy reply takes the likeliest", likeliest, [token.token for token in tokens[:3]])
    sorted_down = all(a.logprob >= b.logprob for token in tokens for a, b in zip(token.top_logprobs, token.top_logprobs[1:]))
    check("likeliest first", sorted_down, [round(one.logprob, 3) for one in tokens[0].top_logprobs])
    chunks = client.chat.completions.create(**asked, stream=True)
    parts = [chunk.choices[0].logprobs for chunk in chunks if chunk.choices and chunk.choices[0].logprobs]
    streamed = bytes(b for part in parts for token in part.content for b in token.bytes or []).decode()
    check("the stream has the same tokens", streamed == text, len(parts))


def forms(client, model):
    """Replies that must conform, whatever the model would rather say."""
    schema = {
        "type": "object",
        "properties": {
            "title": {"type": "string", "maxLength": 40},
            "pages": {"type": "integer", "minimum": 1, "maximum": 999},
            "kind": {"enum": ["novel", "poem"]},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 3},
        },
        "required": ["title", "pages", "kind", "tags"],
        "additionalProperties": False,
    }
    messages = [{"role": "user", "content": "Describe a book as JSON with title, pages, kind and tags."}]
    form = {"type": "json_schema", "json_schema": {"name": "book", "schema": schema, "strict": True}}
    reply = client.chat.completions.create(model=model, messages=messages, max_tokens=200, temperature=0, response_format=form)
    book = json.loads(reply.choices[0].message.content)
    check("a schema's properties come in its order", list(book) == list(schema["properties"]), list(book))
    fits = isinstance(book["title"], str) and len(book["title"]) <= 40 and 1 <= book["pages"] <= 999
    check("strings and numbers conform", fits and type(book["pages"]) is int, book)
    check("so do choices and lists", book["kind"] in ("novel", "poem") and len(book["tags"]) <= 3, book["kind"])
    check("a conforming reply ends by itself", reply.choices[0].finish_reason == "stop", reply.choices[0].finish_reason)
    cut = client.chat.completions.create(model=model, messages=messages, max_tokens=3, temperature=0, response_format=form)
    check("one that is cut short says so", cut.choices[0].finish_reason == "length", repr(cut.choices[0].message.content))
    expression = r"[1-5](, [1-5]){2}"
    regex = client.chat.completions.create(
        model=model, messages=QUESTION, max_tokens=24, temperature=1, extra_body={"structured_outputs": {"regex": expression}}
    )
    content = regex.choices[0].message.content
    check("a regular expression holds", re.fullmatch(expression, content) is not None, repr(content))


def chosen(client, model):
    """What decides between tokens: seeds, biases and the least length."""

    def ask(**more):
        return client.chat.completions.create(**{"model": model, "messages": QUESTION, "max_tokens": 16, "temperature": 1, **more})

    def text(seed):
        return ask(seed=seed).choices[0].message.content

    check("a seed repeats its reply", text(7) == text(7), repr(text(7)))
    check("seeds differ", len({text(seed) for seed in range(4)}) > 1, "more than one reply from four seeds")
    forced = ask(logit_bias={"1000": 100}, max_tokens=4, logprobs=True).choices[0].logprobs.content
    check("a bias of 100 forces a token", len({tuple(token.bytes) for token in forced}) == 1, [token.token for token in forced])
    least = ask(extra_body={"min_tokens": 12}, messages=[{"role": "user", "content": "Say yes."}], temperature=0, max_tokens=12)
    check("a least length holds", least.usage.completion_tokens == 12, least.usage.completion_tokens)


def conversation(client, model):
    """The second turn finds what the first one computed, and only under the same key."""
    turns = [
        {"role": "system", "content": "You are a patient teacher who explains how language models are served, in short sentences."},
        {"role": "user", "content": f"What is a token? (conversation {os.getpid()})"},
    ]

    def ask(who):
        return who.chat.completions.create(model=model, messages=turns, max_tokens=24, temperature=0)

    first = ask(client)
    turns.append({"role": "assistant", "content": first.choices[0].message.content})
    turns.append({"role": "user", "content": "And what is a prompt?"})
    usage = ask(client).usage
    cached, before = usage.prompt_tokens_details.cached_tokens, first.usage.prompt_tokens
    check("a second turn finds the first", before <= cached < usage.prompt_tokens, f"{cached} of {usage.prompt_tokens}")
    other = ask(client.with_options(api_key=f"another-{os.getpid()}")).usage.prompt_tokens_details.cached_tokens
    # The service's own instructions are everyone's, and begin as every system message does.
    check("another key finds no more than the template", other < 8, other)


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
    schema = {"type": "json_schema", "json_schema": {"name": "none", "schema": {"type": "poem"}}}
    error = failure(openai.BadRequestError, response_format=schema)
    check("a schema that says nothing is a 400", error.param == "response_format", error.message)
    error = failure(openai.BadRequestError, top_logprobs=2)
    check("likeliest tokens without probabilities are a 400", error.param == "top_logprobs", error.message)
    error = failure(openai.BadRequestError, logit_bias={"yes": 1})
    check("a bias of a word is a 400", error.param == "logit_bias", error.message)


def main():
    client = openai.OpenAI(base_url=BASE_URL, api_key="none", max_retries=0, timeout=120)
    try:
        model = models(client)
        text = whole(client, model)
        streamed(client, model, text)
        stops(client, model, text)
        probabilities(client, model, text)
        forms(client, model)
        chosen(client, model)
        conversation(client, model)
        leaves(client, model)
        refused(client, model)
    except Deviation as deviation:
        sys.exit(f"deviation: {deviation}")
    print(f"openai {openai.__version__}: every check passed against {BASE_URL}")


if __name__ == "__main__":
    main()
