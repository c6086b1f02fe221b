"""The public bugs of the code under contract, in rows of source, what went wrong, and the defects that do it again.

Behind a dash: why none can, or what is left of it. H: found in miles of 2026-08-21 by running it. B: fixed in miles,
by pull request or commit.
"""

OPEN = (
    ("H01", "Speculative counters never cross the session wire", "counters-stay-on-the-server"),
    (
        "H02",
        "Draft counters are read under retired key names",
        "retired-keys-are-read answers-have-the-readers-key-names",
    ),
    ("H03", "Speculative metrics average ratios", "ratios-are-averaged nothing-counted-is-zero"),
    ("H04", "Prefix-cache totals count a shared turn once a leaf", "shared-turns-count-once-a-leaf"),
    ("H05", "Explicit ids and indices share one number space", "ids-of-a-batch-go-unchecked"),
    ("H07", "An unknown finish reason leaves a sample pending", "an-unknown-reason-stays-pending"),
    ("H08", "A cut on a turn boundary keeps the status completed", "a-cut-between-turns-is-not-told"),
    (
        "H09",
        "Turns behind a cut one are dropped in silence",
        "what-is-cut-off-is-not-counted a-truncated-turn-is-extended",
    ),
    ("H11", "Routed experts of earlier turns are the next prefill's", "rows-of-earlier-turns-are-the-last-prefills"),
    (
        "H13",
        "v1: a client that leaves reasoning out loses all but the last turn",
        "what-is-not-replayed-to-the-letter-is-forgotten",
    ),
    (
        "H14",
        "Validation by assert is gone under python -O",
        "the-mask-is-one-short the-assertion-is-gone identity-is-asserted",
    ),
    (
        "H15",
        "An aborted placeholder stops training, or pulls the baseline",
        "an-aborted-row-stops-the-step an-aborted-rollout-pulls-the-baseline",
    ),
    ("H17", "Throughput without tool time is negative or infinite", "tool-time-is-taken-off-whatever-is-left"),
    ("H18", "Columns are those of the first row", "columns-are-the-first-rows"),
    (
        "H20",
        "Compact rollouts: uneven split, silent loss of the last rows",
        "ranks-take-rows-in-turn batches-are-trimmed-by-rows",
    ),
    (
        "H22",
        "The retry picker misjudges branches",
        "any-later-sibling-is-a-retry a-new-root-is-a-retry twins-are-retries",
    ),
    ("H24", "v1 answers 200 and does not record", "an-answer-is-not-recorded"),
    ("H25", "A failed agent is invisible in the sample", "an-agent-that-failed-passes-for-one-that-ended"),
    ("H30", "Of several choices one is recorded", "the-first-of-several-choices-is-kept"),
    ("H31", "Logprobs that are no numbers", "a-positive-logprob-is-trained-on ids-are-made-of-whatever-comes"),
    (
        "H32",
        "Bad input is a failure for good: malformed arguments, the node cap behind the engine",
        "malformed-arguments-cannot-be-replayed the-cap-is-seen-behind-the-engine",
    ),
    ("H35", "Metadata of agent, server and data set overwrite each other", "an-agent-may-write-any-key"),
    (
        "H45",
        "/generate: text without logprobs is accepted",
        "a-positive-logprob-is-trained-on - one reader serves both endpoints; kinds payload-logprobs-* strike both",
    ),
)

FIXED = (
    ("B02, #2544", "A connection that drops while collecting ends the run", "a-lost-collect-ends-the-rollout"),
    (
        "B03, #2536",
        "A lone leaf is given an id, and its batch taken for a compact one",
        "- our batches are cut by rollouts whatever ids they carry, so that no defect in naming switches trimming off; "
        "miles before and after the fix is told apart by train-data/trimming on batch-single-leaves",
    ),
    ("B06, #2369", "Baselines over flattened rows", "baselines-are-taken-over-rows the-whole-batch-is-one-group"),
    ("B07, #2368", "Leaves without a common id", "siblings-without-an-id zero-is-no-id"),
    ("B11, #2202", "An appended system message is not append-only in ids", "messages-are-rendered-behind-a-stub"),
    ("B15, #2075", "Session requests name no adapter", "sessions-ask-for-the-base-model"),
    (
        "B18, #2028",
        "Speculative counters of agentic runs are zero",
        "the-session-path-counts-nothing one-path-alone-counts",
    ),
    ("B21, #1826", "A first turn cannot be asked again", "a-first-turn-cannot-be-asked-again"),
    ("B23, #1828", "Headers of the engine stand beside the server's", "headers-of-the-engine-stand-beside-the-servers"),
    ("B25, #1712", "Boundary tokens of several appended messages", "messages-are-rendered-behind-a-stub"),
    (
        "B27, #1649",
        "pass@k reshapes a filtered list",
        "- pass@k is computed by the trainer from its own log; no part of a rollout or its batch view has it",
    ),
    (
        "B37, #1449",
        "A dumped rollout is replayed with another batch size",
        "- dumps of batches are miles' own debugging format; nothing of it comes out of a play",
    ),
    ("B41, #1339", "On Python 3.10 an error masks another", "- shows on 3.10 alone: the whole suite runs on it"),
    (
        "B42, #1323",
        "A middle turn that hit the limit crashes assembly",
        "what-is-cut-off-is-not-counted a-truncated-turn-is-extended",
    ),
    ("B46, #1069", "Routed experts are not cut with the tokens", "rows-are-not-cut-with-the-tokens"),
    ("B49, #949", "Appended messages under a stub have stray tokens", "messages-are-rendered-behind-a-stub"),
    ("B51, #967", "A weight version that is no number", "weight-versions-are-forgotten"),
    ("B58, #858", "A user message behind a reply is refused", "a-user-may-not-follow-a-reply"),
    (
        "B61, #817",
        "Concurrent chat and delete corrupt a session",
        "a-closed-session-goes-on a-request-that-failed-blocks-its-session one-lost-answer-closes-all-sessions",
    ),
    (
        "B62, #851",
        "The old Content-Length is sent with a longer body",
        "- a client that frames its own bodies cannot do it; tests/rollout/session/test_sockets.py shows it",
    ),
    (
        "B63, #746",
        "White space drifts and the comparison strips it",
        "messages-are-rendered-behind-a-stub - what the check says is not data; the drift itself is caught",
    ),
    ("B64, #785", "Agentic rows exceed the training length", "no-length-limit-is-looked-at"),
    (
        "B67, #695",
        "The client decides whether logprobs are asked for",
        "router-drops-input-ids - by the same rule: what must arrive did not",
    ),
    (
        "B70, #656",
        "Ids are looked up by text; prompt logprobs defeat the cache",
        "sampled-text-is-tokenised-again prompts-are-counted-without-the-cache "
        "logprobs-are-asked-for-from-the-first-id-on",
    ),
    ("B72, #623", "Metrics vanish from the logs", "counters-are-in-no-log"),
    ("B75, #485", "Collecting deletes the session", "collecting-ends-a-session sessions-are-not-deleted"),
    ("B79, #411", "The length of a response is its count of ones", "ones-are-counted-for-a-length"),
    (
        "B81, #401",
        "Accept length is taken from the response's length",
        "ids-kept-stand-for-ids-generated the-last-turn-counts-alone",
    ),
    ("B85, 67ba097a7", "A row of experts a token, not a transition", "rows-are-one-late"),
    (
        "B87, 810eaa427",
        "The agent's reward is overwritten; counters vanish",
        "what-the-agent-returned-is-lost verify-steps-stay-on-the-server",
    ),
    (
        "B94, 5952fa386",
        "An aborted reply has no weight version",
        "weight-versions-are-forgotten - the kind payload-version-missing strikes such replies; to read it is a crash",
    ),
    (
        "B97, fb65c0b84",
        "An assertion on aborted samples without logprobs",
        "the-placeholder-stays-pending - the assertion itself is a crash of one sample",
    ),
    ("B107, 3db3545cd", "The status is hard-coded", "every-sample-is-completed"),
    ("B108, 3c6862c99", "Siblings share one dictionary of sampling parameters", "siblings-share-one-budget"),
    (
        "B109, bc2074629",
        "Evaluation flattens a dictionary",
        "- evaluation sets are the trainer's own; a play has no such result",
    ),
    ("B110, cebddce6a", "Nested lists are sorted as if flat", "rows-are-sorted-as-if-they-were-flat"),
)

THREADS = (
    (
        "miles PR 2598",
        "Counters: retired names, not on the wire, averaged, once a leaf",
        "counters-stay-on-the-server ratios-are-averaged",
    ),
    ("miles PR 2736", "Counters turn to zero over the wire", "counters-stay-on-the-server"),
    ("miles PR 2028", "64 samples with zero counters, the engine logs 1.77", "the-session-path-counts-nothing"),
    ("miles PR 2767", "Prefix-cache totals inflated by shared turns", "shared-turns-count-once-a-leaf"),
    ("miles PR 2405", "Adapters share rollout identities", "ids-of-a-batch-go-unchecked"),
    ("miles PR 3307", "Rows of experts replaced by a later prefill", "rows-of-earlier-turns-are-the-last-prefills"),
    ("miles PR 3311", "A request that fails still rolls the session back", "a-request-that-failed-blocks-its-session"),
    ("miles PR 2292", "Compaction rewinds 177 checkpoints and is refused", "a-first-turn-cannot-be-asked-again"),
    ("miles PR 889", "A refusal kills the session for good", "a-request-that-failed-blocks-its-session"),
    (
        "miles PR 2801",
        "Failed sandboxes are trained as reward 0",
        "an-agent-that-failed-passes-for-one-that-ended an-aborted-rollout-pulls-the-baseline",
    ),
    ("miles PR 3036", "An abort fails where an engine cannot answer", "one-lost-answer-closes-all-sessions"),
    (
        "miles PR 2983",
        "An abort waits for ever on a silent engine",
        "a-closed-session-goes-on the-server-cannot-be-stopped",
    ),
    (
        "miles PR 3319",
        "A CancelledError ends the producer",
        "- the producer is the trainer's loop; a rollout that is cancelled: kind agent-cancels",
    ),
    ("miles PR 3324", "One agent error in evaluation ends the run", "a-crashed-agent-ends-the-rollout"),
    (
        "slime issue 2288",
        "Reasoning dropped on replay forks the tree",
        "what-is-not-replayed-to-the-letter-is-forgotten",
    ),
    ("slime issue 2263", "Tool messages in a row are separate user turns", "messages-are-rendered-behind-a-stub"),
    ("slime issue 1563", "A slice by the count of ones", "ones-are-counted-for-a-length"),
    (
        "slime PR 2272",
        "Incomplete streams are trained on",
        "ids-are-made-of-whatever-comes - no stream is asked for; the kinds transport-cut-* cut whole replies",
    ),
    (
        "verl issue 6719",
        "Boundary pitfalls of several turns",
        "messages-are-rendered-behind-a-stub the-last-stop-token-is-trimmed",
    ),
    ("verl PR 6089", "Routed experts not cut with the response", "rows-are-not-cut-with-the-tokens"),
    ("verl PR 7970", "Aborted rows distort a mean", "an-aborted-rollout-pulls-the-baseline"),
    ("SkyRL PR 1539", "The length check looks at the turn before", "no-length-limit-is-looked-at"),
    ("SkyRL issue 213", "The response slice assumes the first prompt", "the-first-id-is-lost tool-results-are-trained"),
    (
        "SkyRL PR 1319",
        "The overlong filter looks at one stop token",
        "every-sample-is-completed the-last-stop-token-is-trimmed",
    ),
    ("prime-rl issue 1334", "A prefix assertion in several turns", "messages-are-rendered-behind-a-stub"),
    ("verifiers PR 1349", "One truncation branch misses the rows", "rows-are-not-cut-with-the-tokens"),
    (
        "rllm issue 352",
        "A drifted trajectory is masked with a warning",
        "rows-lose-their-mask what-is-cut-off-is-not-counted",
    ),
    ("rllm issue 605", "Groups of one", "baselines-are-taken-over-rows"),
    ("trl issue 5224", "Sampled text is tokenised again", "sampled-text-is-tokenised-again"),
    (
        "Gym PR 1787",
        "Parse drift breaks prefixes on tool turns",
        "messages-are-rendered-behind-a-stub malformed-arguments-cannot-be-replayed",
    ),
    (
        "vllm issue 56101",
        "Accept length overcounts where the end falls in a draft",
        "bonus-ids-count-as-drafts ids-kept-stand-for-ids-generated",
    ),
    ("ms-swift PR 10012", "Sampled ids are encoded again", "sampled-text-is-tokenised-again"),
    ("OpenRLHF PR 1327", "The status of a conversation that is cut", "a-cut-between-turns-is-not-told"),
)
