"""Approvals in a web app: an agent asks a person before an irreversible action, and no process waits meanwhile.

    HOLDFAST_STORE=refunds.db uvicorn examples.approval_fastapi:app      # or any other ASGI server

    POST /requests          {"id": "r-1", "customer": "ada", "text": "Refund order 7, it came broken."}
    GET  /waiting           open questions
    POST /answers/ada       {"request": "r-1", "approve": true, "by": "grace"}

Every request may be repeated, after a time-out or a crash of either side: with `turn=`, requests with the same id are
the same piece of work, and the first answer counts. Between question and answer the run is only a record in the store.
You may restart the server, or use another server on the same store. Refunds are written to refunds.csv, in place of a
bank.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

import holdfast
from holdfast import AsyncRun, Conflict, Happened, Holdfast, LeaseHeld, NotDone, NotFound

PRICES = {"7": 40, "8": 250}
REFUNDS = Path("refunds.csv")


def was_paid(order: str, amount: int, idempotency_key: str) -> Happened | NotDone:
    """The probe: after a crash during a refund, look whether it was paid."""
    paid = REFUNDS.exists() and idempotency_key in REFUNDS.read_text("utf-8")
    return Happened({"order": order, "refunded": amount}) if paid else NotDone()


@holdfast.tool(effect="irreversible", probe=was_paid, probe_after=1.0)  # a second later, it can no longer happen
def refund(order: str, amount: int, idempotency_key: str) -> dict[str, Any]:
    with REFUNDS.open("a", encoding="utf-8") as refunds:
        refunds.write(f"{idempotency_key},{order},{amount}\n")
    return {"order": order, "refunded": amount}


async def plan(text: str) -> dict[str, Any]:
    """A fake model that reads the customer's text."""
    found = re.search(r"order (\d+)", text)
    order = found[1] if found else None
    return {"order": order, "amount": PRICES.get(order or "")}


def question(request_id: str) -> str:
    # Each request has its own question, so that a repeated or late answer cannot answer another one.
    return f"approve {request_id}"


async def agent(run: AsyncRun) -> None:
    async for _ in run.steps():
        asked = run.state["asked"][-1]
        planned = await run.model(plan, asked["text"])
        if planned["amount"] is None:
            await run.finish("Which order is it about?")
        # The block ends here until there is an answer. Then the calls above are answered from the journal.
        elif await run.wait(question(asked["id"]), {"request": asked["id"], **planned}):
            paid = await run.tool("refund", planned, key="refund")
            await run.finish(f"{paid['refunded']} are on their way.")
        else:
            await run.finish("We cannot refund that.")
        break


class Asked(BaseModel):
    id: str
    customer: str
    text: str


class Answer(BaseModel):
    request: str
    approve: bool
    by: str


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    with holdfast.open(tools=[refund]) as hf:
        app.state.hf = hf
        yield


app = FastAPI(lifespan=lifespan)


def handle(request: Request) -> Holdfast:
    hf: Holdfast = request.app.state.hf
    return hf


def told(run: AsyncRun) -> dict[str, Any]:
    return {"thread": run.thread, "status": run.status, "result": run.result}


@app.post("/requests")
async def ask(asked: Asked, request: Request) -> dict[str, Any]:
    """Start a request, resume it, or return its result."""
    start: dict[str, Any] = {"asked": []}
    # One thread per customer, one turn per request. Of two concurrent requests, the second waits for the first.
    async with handle(request).aio.run(asked.customer, start=start, turn=asked.id, wait=10) as run:
        if run.fresh:
            run.state["asked"].append({"id": asked.id, "text": asked.text})
            await run.save()  # the process that handles the answer does not have this request
        await agent(run)
    return told(run)


@app.get("/waiting")
async def waiting(request: Request) -> list[dict[str, Any]]:
    return [
        {"thread": found.thread, "since": found.since, "to": found.name, **found.payload}
        async for found in handle(request).aio.waiting()
        if found.about == "wait"
    ]


@app.post("/answers/{thread}")
async def answer(thread: str, given: Answer, request: Request) -> dict[str, Any]:
    """Answer, then resume. If the server dies in between, send the answer again: it was kept."""
    hf = handle(request).aio
    await hf.answer(thread, question(given.request), given.approve, by=given.by)
    async with hf.run(thread, wait=10) as run:
        await agent(run)
    return told(run)


@app.exception_handler(Conflict)
async def conflict(_request: Request, error: Conflict) -> JSONResponse:
    """409: there is another answer, there is no such question, or the customer has another request in progress."""
    return JSONResponse({"detail": str(error)}, 409)


@app.exception_handler(NotFound)
async def not_found(_request: Request, error: NotFound) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 404)


@app.exception_handler(LeaseHeld)
async def held(_request: Request, error: LeaseHeld) -> JSONResponse:
    """503: another server works on the request. Try again: the request continues there, or here if that server died."""
    return JSONResponse({"detail": str(error)}, 503, {"Retry-After": "5"})
