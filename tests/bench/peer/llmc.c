// llm.c's GPT-2 on the CPU, driven as transformer.py drives the other programs: a line of metrics.jsonl for each step. Built
// by transformer.py against the user's own checkout, whose train_gpt2.c has no main() with TESTING.
#define TESTING
#include "train_gpt2.c"

int main(int argc, char** argv) {
  if (argc != 7) {
    fprintf(stderr, "expected WEIGHTS TOKENS BATCH CONTEXT STEPS RUN_DIR, got %d arguments\n", argc - 1);
    return 2;
  }
  const int batch = atoi(argv[3]), context = atoi(argv[4]), steps = atoi(argv[5]);
  char path[4096];
  snprintf(path, sizeof path, "%s/metrics.jsonl", argv[6]);
  FILE* log = fopenCheck(path, "w");
  GPT2 model;
  gpt2_build_from_checkpoint(&model, argv[1]);
  DataLoader loader;
  dataloader_init(&loader, argv[2], batch, context, 0, 1, 1);
  for (int step = 1; step <= steps; ++step) {
    dataloader_next_batch(&loader);
    gpt2_forward(&model, loader.inputs, loader.targets, batch, context);
    gpt2_zero_grad(&model);
    gpt2_backward(&model);
    gpt2_update(&model, 1e-3f, 0.9f, 0.999f, 1e-8f, 0.01f, step);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    fprintf(log, "{\"event\":\"step\",\"loss\":%.6f,\"time\":%.6f}\n", model.mean_loss, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
  }
  fcloseCheck(log);
  dataloader_free(&loader);
  gpt2_free(&model);
  return 0;
}
