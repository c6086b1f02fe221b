"""Our generate and merge: the complete reference implementation of agentic rollouts.

It imports nothing of the simulator but the tokenizer's interface, and could be lifted out.
"""
