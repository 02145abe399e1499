"""What Smooth has: each public type, field, method and behaviour, and what its own tests assert, in our words."""

from __future__ import annotations

from typing import Final

_CHECKPOINT: Final = (
    ("Checkpoint.id", "each checkpoint has an id of its own, not empty"),
    ("Checkpoint.agent_id", "the agent it belongs to"),
    ("Checkpoint.conversation", "the conversation, whole"),
    ("Checkpoint.iteration", "the number of the iteration"),
    ("Checkpoint.metadata", "texts by name"),
    ("Checkpoint.created_at", "when it was made, UTC"),
    ("Checkpoint.new", "made of agent, conversation and iteration; later changes of the conversation do not reach it"),
    ("Checkpoint.with_metadata", "data added name by name, all of it kept"),
    ("Checkpoint.to_bytes", "a checkpoint as bytes"),
    ("Checkpoint.from_bytes", "and from these bytes again"),
)

_STRATEGY: Final = (
    ("CheckpointStrategy.default", "without a word, saved after every tool call"),
    ("CheckpointStrategy.AfterToolCall", "after a tool call, not after an answer of the model"),
    ("CheckpointStrategy.EveryN", "at every nth iteration: of n = 3 at 3 and 6, not at 1 and 2"),
    ("CheckpointStrategy.AfterLlmResponse", "after an answer of the model, not after a tool call"),
    ("CheckpointStrategy.Never", "never by itself"),
    ("CheckpointStrategy.should_checkpoint", "asked with iteration and event"),
    ("CheckpointStrategy.clone", "a value: copied and compared"),
    ("CheckpointEvent.ToolCallComplete", "the event: a tool call is complete"),
    ("CheckpointEvent.LlmResponse", "the event: the model has answered"),
    ("CheckpointEvent.Iteration", "the event: an iteration is over"),
)

_STORE: Final = (
    ("CheckpointStore.save", "stores a checkpoint of an agent"),
    ("CheckpointStore.load_latest", "the newest of an agent"),
    ("CheckpointStore.load_latest.none", "nothing for an agent that has none"),
    ("CheckpointStore.load", "one by its id"),
    ("CheckpointStore.load.none", "an unknown id is told from an error"),
    ("CheckpointStore.list", "those of an agent, newest first"),
    ("CheckpointStore.list.agent", "and of no other agent"),
    ("CheckpointStore.list.states", "with their states"),
    ("CheckpointStore.prune", "keeps the newest n, and says how many went: of 10, 3 stay, 7 go"),
    ("CheckpointStore.prune.isolated", "the checkpoints of other agents stay"),
    ("CheckpointStore.sync", "any thread of the program may use it"),
    ("CheckpointStore.upsert", "the checkpoint of an iteration can be replaced by a newer one"),
    ("MemoryCheckpointStore.new", "a store in memory, empty"),
    ("MemoryCheckpointStore.default", "by default, too"),
    ("MemoryCheckpointStore.clones", "what is in it cannot be changed through what was saved or loaded"),
    ("FileCheckpointStore.new", "a store of files in a folder"),
    ("FileCheckpointStore.save.creates_file", "a saved checkpoint is on the disk"),
    ("FileCheckpointStore.nested_agent_dirs", "what is of one agent lies in a folder of its own"),
    ("FileCheckpointStore.missing_dir_created", "folders that are not there are made, at any depth"),
    ("FileCheckpointStore.load_roundtrip", "id, agent and iteration 42 come back"),
    ("FileCheckpointStore.missing", "a folder that is not there yet has no checkpoints, and is no error"),
    ("SqliteCheckpointStore.open", "opens or makes a file, ready to be saved to"),
    ("SqliteCheckpointStore.open.parents", "folders to it are made"),
    ("SqliteCheckpointStore.in_memory", "a database that is gone with the process"),
    ("SqliteCheckpointStore.wal", "a write-ahead log: readers do not wait for a writer"),
    ("SqliteCheckpointStore.list_newest_first", "times fall from one to the next"),
    ("SqliteCheckpointStore.concurrent_saves", "50 saves, none lost: here by threads that do save at the same time"),
    ("PostgresCheckpointStore.connect", "opens a PostgreSQL by its address and makes its tables"),
    ("PostgresCheckpointStore.contract", "empty, save, newest, by id, list, replace, prune: the same there"),
    ("PostgresCheckpointStore.pool", "connections are pooled"),
)

_LOOP: Final = (
    ("Agent.resume_or_new", "an agent goes on where it was, or begins"),
    ("Agent.maybe_checkpoint", "the loop asks the strategy after each answer and each tool result"),
    ("Agent.save_error", "a save that fails is told; what was saved before stays"),
    ("AgentEvent.CheckpointSaved", "others are told that a checkpoint was saved"),
    ("python.one_slot", "one newest state for each conversation id"),
    ("python.refuses_unanswered", "a conversation with unanswered tool calls is not saved"),
)

_MESSAGE: Final = (
    ("Message.id", "each message has an id"),
    ("Message.role", "system, user, assistant or tool"),
    ("Message.content", "what is said"),
    ("Message.tool_call_id", "which call a tool message answers"),
    ("Message.tool_name", "which tool gave the result"),
    ("Message.tool_calls", "what an assistant message asks tools for"),
    ("Message.reasoning_content", "what the model thought, to be given back to it"),
    ("Message.images", "images, by data or https URL, with a hint of detail"),
    ("Message.timestamp", "when it was said, UTC"),
    ("Message.system", "made by one call: a system message"),
    ("Message.user", "… a message of the user"),
    ("Message.user_with_images", "… with images"),
    ("Message.assistant", "… of the assistant"),
    ("Message.tool_result", "… a tool's result, for a call"),
    ("Message.tool_result_named", "… with the name of the tool"),
    ("Message.estimated_tokens", "about 4 characters to a token, never 0"),
    ("Message.serialization", "goes to JSON and back; a text message carries no field for images"),
    ("Message.images.serialization", "an image comes back with URL and detail"),
    ("ImageContent.new", "an image of a URL alone"),
    ("ToolCall", "id, name and arguments of a call"),
    ("Role.serialization", "roles are small words in what is stored"),
)

_CONVERSATION: Final = (
    ("Conversation.id", "each conversation has an id"),
    ("Conversation.messages", "its messages, in order"),
    ("Conversation.max_context_tokens", "how much may be sent to the model"),
    ("Conversation.new", "begins empty, with that limit: no tokens, no answer"),
    ("Conversation.with_system_prompt", "with a system prompt"),
    ("Conversation.push", "a message is added at its end"),
    ("Conversation.context_window", "system messages first, then the newest that fit, in their order"),
    ("Conversation.context_window.trims", "of 100 messages and 50 tokens not all"),
    ("Conversation.context_window.small", "the system prompt is there however little fits"),
    ("Conversation.context_window.pairs", "never an unanswered call or a result without its call where it was cut"),
    ("Conversation.total_tokens", "the tokens of all of it"),
    ("Conversation.len", "how many messages"),
    ("Conversation.is_empty", "whether there is none"),
    ("Conversation.last_assistant_content", "what the assistant said last, or nothing"),
    ("Conversation.assistant_turn_count", "how many messages of the assistant"),
    ("Conversation.serialization", "goes to JSON, or into a store, and back"),
    ("Conversation.needs_compaction", "over 80 % of the limit, not below"),
    ("Conversation.compact", "made shorter by a strategy, in place"),
)

_COMPACTION: Final = (
    ("CompactionStrategy.SlidingWindow", "the oldest go until 60 % are left; system messages stay"),
    ("CompactionStrategy.SnipToolResults", "results of old tool calls become a line with tool and outcome"),
    ("CompactionStrategy.SnipToolResults.recent", "the newest n messages stay as they are"),
    ("CompactionStrategy.Summarize", "what is older than the newest n becomes a summary that the caller gives"),
    ("CompactionStrategy.Summarize.none", "without a summary nothing is done"),
    ("CompactionStrategy.Layered", "first results are snipped; if it is still over 60 %, it is summarised"),
    ("CompactionStrategy.default", "by default results are snipped, but of the newest 10 messages"),
    ("CompactionStrategy.clone", "a value: copied, compared, to JSON and back"),
    ("Compaction.order", "what is left keeps its order, the system prompt first"),
    ("Compaction.ids", "what is left unchanged keeps its id and time"),
    ("CompactionResult.messages_removed", "how many messages went"),
    ("CompactionResult.tokens_before", "tokens before"),
    ("CompactionResult.tokens_after", "and after, fewer"),
    ("CompactionResult.summary_injected", "whether a summary was put in"),
    ("ReactiveCompaction.new", "counts attempts: begins at 0, closed"),
    ("ReactiveCompaction.record_success", "a success ends a row of failures; the sum of them stays"),
    ("ReactiveCompaction.record_failure", "a failure is counted, in the row and in the sum"),
    ("ReactiveCompaction.is_circuit_open", "open after 3 failures in a row, not after 2"),
    ("ReactiveCompaction.stats", "all counts at once"),
    ("CompactionStats", "which go to JSON and back, equal"),
)

_PROMPT: Final = (
    ("PromptCache.from_system_prompt", "a system prompt is split at a marker: what stays, what changes"),
    ("PromptCache.no_marker", "without the marker all of it may change"),
    ("PromptCache.full_prompt", "both parts in one text again"),
    ("PromptCache.update_dynamic", "only the part that changes is replaced"),
    ("PromptCache.static_hash", "what stays has a digest: the same for the same, another for another"),
    ("PromptCache.cached_tokens", "the tokens of what stays; 0 if nothing does"),
    ("Conversation.with_cached_system_prompt", "such a prompt replaces the system prompt; all else stays"),
    ("ContextHandoff.to_text", "for another provider, thoughts are put into the text in tags"),
    ("ContextHandoff.from_text", "and taken out of it again"),
    ("ContextHandoff.same_provider", "for the same one nothing is changed"),
    ("ContextHandoff.strip_provider_metadata", "ids that the provider gave to calls are gone"),
    ("ContextHandoff.placeholder", "an empty message of the assistant gets a text"),
    ("ContextHandoff.prepare", "all of it in a new conversation; the old one is as it was"),
)

SMOOTH: Final[tuple[tuple[str, str], ...]] = (
    *(*_CHECKPOINT, *_STRATEGY, *_STORE, *_LOOP),
    *(*_MESSAGE, *_CONVERSATION, *_COMPACTION, *_PROMPT),
)
