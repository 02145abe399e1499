"""A web app asks a person before it refunds, and no process waits meanwhile. Every request may be repeated.

    POST /requests       {"id": "r-1", "customer": "ada", "order": "7", "amount": 40}
    GET  /waiting
    POST /answers/ada    {"request": "r-1", "approve": true, "by": "grace"}
Needs fastapi and uvicorn. Start it with: HOLDFAST_STORE=refunds.db uvicorn examples.approval_fastapi:app
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

import holdfast
from holdfast import AsyncRun, Happened, HoldfastError, LeaseHeld, NotDone, NotFound

REFUNDS = Path("refunds.csv")  # in place of a bank


def was_paid(order: str, amount: int, idempotency_key: str) -> Happened | NotDone:  # the probe, after a crash
    paid = REFUNDS.exists() and f"{idempotency_key},{order}," in REFUNDS.read_text("utf-8")
    return Happened(amount) if paid else NotDone()


@holdfast.tool(effect="irreversible", probe=was_paid, probe_after=1.0)  # a second later, it can no longer happen
def refund(order: str, amount: int, idempotency_key: str) -> int:
    with REFUNDS.open("a", encoding="utf-8") as refunds:
        refunds.write(f"{idempotency_key},{order},{amount}\n")
    return amount


async def agent(run: AsyncRun) -> None:
    async for _ in run.steps():
        asked = run.state["asked"][-1]
        if await run.wait(f"approve {asked['id']}", asked):  # ends the block until there is an answer
            await run.finish(await run.tool("refund", {"order": asked["order"], "amount": asked["amount"]}))
        else:
            await run.finish("refused")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with await holdfast.aopen(tools=[refund]) as app.state.hf:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/requests")
async def ask(request: Request) -> dict[str, object]:
    asked = await request.json()  # each customer has a thread, and each request is a turn of it
    async with request.app.state.hf.run(asked["customer"], start={"asked": []}, turn=asked["id"], wait=10) as run:
        if run.fresh:
            run.state["asked"].append(asked)
            await run.save()  # the process that handles the answer does not have this request
        await agent(run)
    return {"thread": run.thread, "status": run.status, "result": run.result}


@app.get("/waiting")
async def waiting(request: Request) -> list[dict[str, object]]:
    return [{"thread": each.thread, "to": each.name, **each.payload} async for each in request.app.state.hf.waiting()]


@app.post("/answers/{thread}")
async def answer(thread: str, request: Request) -> dict[str, object]:
    hf, given = request.app.state.hf, await request.json()
    await hf.answer(thread, f"approve {given['request']}", given["approve"], by=given["by"])  # kept if the server dies
    async with hf.run(thread, wait=10) as run:
        await agent(run)
    return {"thread": run.thread, "status": run.status, "result": run.result}


@app.exception_handler(HoldfastError)
async def refused(_: Request, error: HoldfastError) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, {NotFound: 404, LeaseHeld: 503}.get(type(error), 409))
