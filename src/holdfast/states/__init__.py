"""Optional state types: messages, tool calls, and a conversation with a token budget."""

from holdfast.states.calls import CallStatus as CallStatus
from holdfast.states.calls import ToolCall as ToolCall
from holdfast.states.compaction import Breaker as Breaker
from holdfast.states.compaction import Compacted as Compacted
from holdfast.states.compaction import SlidingWindow as SlidingWindow
from holdfast.states.compaction import SnipResults as SnipResults
from holdfast.states.compaction import Summarise as Summarise
from holdfast.states.compaction import Way as Way
from holdfast.states.conversation import Conversation as Conversation
from holdfast.states.handing import hand_over as hand_over
from holdfast.states.messages import File as File
from holdfast.states.messages import Image as Image
from holdfast.states.messages import Message as Message
from holdfast.states.messages import Part as Part
from holdfast.states.messages import Role as Role
from holdfast.states.messages import Text as Text
from holdfast.states.messages import estimated_tokens as estimated_tokens
from holdfast.states.prompt import Prompt as Prompt
from holdfast.states.work import Work as Work
