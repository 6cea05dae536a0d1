"""Answer HTTP as a model server does: who is let in, and what is where."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext

from aiohttp import web

from hearth.stub import answers, options, prompts, record, text, turn, vllm_metrics

Shape = Callable[[answers.Head, prompts.Prompt], answers.Format]
Route = Callable[[web.Request, record.Entry], Awaitable[web.StreamResponse]]


class Engine:
    """One engine.  `ready_at` is a moment of the monotonic clock."""

    def __init__(self, opts: options.Options, log: record.Record, *, ready_at: float) -> None:
        self._opts = opts
        self._log = log
        self._ready_at = ready_at
        self._created = int(time.time())
        self._ids = itertools.count(1)
        self._metrics = vllm_metrics.EngineMetrics(
            opts.models[0], slots=opts.max_num_seqs or opts.max_concurrent
        )
        self._seqs = asyncio.Semaphore(opts.max_num_seqs) if opts.max_num_seqs else nullcontext()
        self._active = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopping = False
        self._routes: dict[str, tuple[str, Route]] = {
            "/health": ("GET", self._health),
            "/metrics": ("GET", self._render_metrics),
            "/v1/models": ("GET", self._models),
            "/v1/chat/completions": ("POST", self._generation("messages", _chat)),
            "/v1/completions": ("POST", self._generation("prompt", _completion)),
            "/v1/responses": ("POST", self._generation("input", _response)),
            "/v1/embeddings": ("POST", self._embed),
        }

    def application(self) -> web.Application:
        """The aiohttp application; bodies are not limited."""
        app = web.Application(client_max_size=0)
        app.router.add_route("*", "/{path:.*}", self._serve)
        return app

    @property
    def ready(self) -> bool:
        """Whether the model counts as loaded now."""
        opts = self._opts
        return (
            not opts.never_ready
            and time.monotonic() >= self._ready_at
            and (opts.ready_file is None or opts.ready_file.exists())
        )

    @property
    def active(self) -> int:
        """Requests that are being answered."""
        return self._active

    async def drain(self) -> None:
        """Refuse new work from now on and wait until what runs has finished."""
        self._stopping = True
        await self._idle.wait()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        entry = record.Entry(
            method=request.method,
            target=request.raw_path,
            headers=record.decode(request.raw_headers),
        )
        self._active += 1
        self._idle.clear()
        try:
            entry.body = await request.read()
            try:
                response = await self._dispatch(request, entry)
            except turn.Refused as refused:
                body = answers.error(str(refused), type=refused.type, code=refused.status)
                response = web.Response(body=body, status=refused.status, headers=turn.JSON)
            if self._stopping:
                response.force_close()
            if not response.prepared:
                entry.status = response.status
                self._ended(entry, "finished")
            await response.prepare(request)
            await response.write_eof()
            return response
        finally:
            self._ended(entry, "stopped" if self._stopping else "client gone")
            self._active -= 1
            if not self._active:
                self._idle.set()

    def _ended(self, entry: record.Entry, end: str) -> None:
        # Before the last bytes go out: a client that has the whole answer finds its line.
        if entry.end is None:
            entry.end = end
            self._log.write(entry)

    async def _dispatch(self, request: web.Request, entry: record.Entry) -> web.StreamResponse:
        path = request.path
        if path not in self._routes:
            raise turn.Refused(404, "NotFoundError", f"there is no {path} here")
        method, answer = self._routes[path]
        if request.method != method and (request.method, method) != ("HEAD", "GET"):
            raise turn.Refused(405, "MethodNotAllowed", f"{path} takes {method}")
        if path.startswith("/v1/"):
            key = self._opts.api_key
            if key is not None and request.headers.get("Authorization") != f"Bearer {key}":
                raise turn.Refused(401, "AuthenticationError", "the API key is missing or wrong")
            if self._stopping:
                raise turn.Refused(503, "ServiceUnavailable", "the engine is stopping")
            if not self.ready:
                raise turn.Refused(503, "ServiceUnavailable", "the model is still loading")
        return await answer(request, entry)

    async def _health(self, request: web.Request, entry: record.Entry) -> web.Response:
        state, status = ("ok", 200) if self.ready else ("loading", 503)
        return web.Response(
            body=answers.encode({"status": state}), status=status, headers=turn.JSON
        )

    async def _render_metrics(self, request: web.Request, entry: record.Entry) -> web.Response:
        return web.Response(
            text=self._metrics.render(), headers={"Content-Type": vllm_metrics.CONTENT_TYPE}
        )

    async def _models(self, request: web.Request, entry: record.Entry) -> web.Response:
        body = answers.models(self._opts.models, created=self._created)
        return web.Response(body=body, headers=turn.JSON)

    def _generation(self, field: str, shape: Shape) -> Route:
        async def generate(request: web.Request, entry: record.Entry) -> web.StreamResponse:
            prompt, play = self._read(request, entry, field)
            words = _words(prompt, play)
            head = answers.Head(
                f"stub-{next(self._ids)}", prompt.model or self._opts.models[0], int(time.time())
            )
            answer = shape(head, prompt)
            async with self._turn(request, entry, play, prompt) as mine:
                if prompt.stream:
                    response = await mine.stream(answer, words)
                else:
                    body = answer.whole(words.text, words.finish, words.usage)
                    response = await mine.whole(body, tokens=len(words.tokens))
                self._metrics.finished[words.finish] += 1
                return response

        return generate

    async def _embed(self, request: web.Request, entry: record.Entry) -> web.StreamResponse:
        prompt, play = self._read(request, entry, "input")
        body = answers.embeddings(
            prompts.texts(prompt, field="input"),
            model=prompt.model or self._opts.models[0],
            prompt_tokens=prompt.tokens,
            dimensions=prompt.dimensions,
            as_base64=prompt.as_base64,
        )
        async with self._turn(request, entry, play, prompt) as mine:
            return await mine.whole(body, tokens=0)

    def _read(
        self, request: web.Request, entry: record.Entry, field: str
    ) -> tuple[prompts.Prompt, options.Play]:
        try:
            prompt = prompts.read(entry.body or b"", field=field)
            header = request.headers.get("x-stub-fault")
            play = options.play_for(self._opts.play, header=header, field=prompt.body.get("stub"))
        except (prompts.BadBody, options.BadRequest) as error:
            raise turn.Refused(400, "BadRequestError", str(error)) from error
        if prompt.model is not None and prompt.model not in self._opts.models:
            message = f"The model `{prompt.model}` does not exist."
            raise turn.Refused(404, "NotFoundError", message)
        return prompt, play

    @asynccontextmanager
    async def _turn(
        self,
        request: web.Request,
        entry: record.Entry,
        play: options.Play,
        prompt: prompts.Prompt,
    ) -> AsyncIterator[turn.Turn]:
        """A place among those that run, or 503."""
        metrics, limit = self._metrics, self._opts.max_concurrent
        if limit is not None and metrics.running + metrics.waiting >= limit:
            message = f"{limit} requests are running already, the most this engine takes"
            raise turn.Refused(503, "ServiceUnavailable", message)
        mine = turn.Turn(
            request,
            entry,
            play,
            metrics=metrics,
            crash_code=self._opts.crash_code,
            ended=lambda end: self._ended(entry, end),
        )
        with metrics.request(prompt_tokens=prompt.tokens) as counted:
            async with self._seqs:
                counted.runs()
                await mine.begin()
                yield mine


def _words(prompt: prompts.Prompt, play: options.Play) -> turn.Words:
    tokens = text.say(prompt.said, tokens=play.tokens, text=play.text)
    limit = prompt.max_tokens
    cut = limit is not None and limit < len(tokens)
    tokens = tokens[:limit]
    return turn.Words(
        tokens=tokens,
        finish="length" if cut else "stop",
        usage=answers.Usage(prompt.tokens, len(tokens)),
    )


def _chat(head: answers.Head, prompt: prompts.Prompt) -> answers.Format:
    return answers.Chat(head, include_usage=prompt.include_usage)


def _completion(head: answers.Head, prompt: prompts.Prompt) -> answers.Format:
    return answers.Completion(head, include_usage=prompt.include_usage)


def _response(head: answers.Head, prompt: prompts.Prompt) -> answers.Format:
    return answers.Response(head)
