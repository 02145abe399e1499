"""Imports the clients with all that they put off until they are used first."""

from __future__ import annotations

import asyncio  # noqa: F401 - to have it imported
import runpy  # noqa: F401 - the same

import anthropic
import openai

USED = (
    openai.OpenAI(api_key="none").chat.completions,
    openai.AsyncOpenAI(api_key="none").chat.completions,
    anthropic.Anthropic(api_key="none").messages,
    anthropic.AsyncAnthropic(api_key="none").messages,
)
