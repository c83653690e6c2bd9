// SPDX-License-Identifier: Apache-2.0 OR MIT
// Records as JSON Lines.
#define _GNU_SOURCE
#include "output.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite.h"

#define SCHEMA "barewire-mpi/1"

static FILE *file;

int open_output(const char *path, int append) {
  file = strcmp(path, "-") ? fopen(path, append ? "a" : "w") : stdout;
  return file ? 0 : errno;
}

static void write_text(const char *text) {
  fputc('"', file);
  for (; *text; text++) {
    unsigned char byte = (unsigned char)*text;
    if (byte == '"' || byte == '\\') {
      fprintf(file, "\\%c", byte);
    } else if (byte < ' ') {
      fprintf(file, "\\u%04x", byte);
    } else {
      fputc(byte, file);
    }
  }
  fputc('"', file);
}

void write_start(const char *test, int argc, char **argv) {
  char host[MPI_MAX_PROCESSOR_NAME] = {0}, library[MPI_MAX_LIBRARY_VERSION_STRING];
  int length, level, cpu = sched_getcpu(), cpus[2] = {cpu, 0};
  MPI_Get_processor_name(host, &length);
  MPI_Query_thread(&level);
  MPI_Get_library_version(library, &length);
  cpu_set_t allowed;
  if (!sched_getaffinity(0, sizeof allowed, &allowed)) cpus[1] = CPU_COUNT(&allowed);
  char *hosts = rank ? NULL : allocate((size_t)ranks * sizeof host);
  int *all_cpus = rank ? NULL : allocate((size_t)ranks * sizeof cpus);
  MPI_Gather(host, sizeof host, MPI_CHAR, hosts, sizeof host, MPI_CHAR, 0, MPI_COMM_WORLD);
  MPI_Gather(cpus, 2, MPI_INT, all_cpus, 2, MPI_INT, 0, MPI_COMM_WORLD);
  if (rank) return;
  fprintf(file, "{\"record\": \"start\", \"schema\": \"%s\", \"test\": \"%s\", \"library\": ", SCHEMA, test);
  write_text(library);
  const char *levels = level == MPI_THREAD_MULTIPLE     ? "multiple"
                       : level == MPI_THREAD_SERIALIZED ? "serialized"
                       : level == MPI_THREAD_FUNNELED   ? "funneled"
                                                        : "single";
  fprintf(file, ", \"threads\": \"%s\", \"ranks\": %d, \"hosts\": [", levels, ranks);
  for (int number = 0; number < ranks; number++) {
    if (number) fputs(", ", file);
    write_text(hosts + (size_t)number * sizeof host);
  }
  // The current core of each rank, and the number of cores that it may use.
  fputs("], \"cpus\": [", file);
  for (int number = 0; number < ranks; number++)
    fprintf(file, "%s[%d, %d]", number ? ", " : "", all_cpus[2 * number], all_cpus[2 * number + 1]);
  fprintf(file, "], \"clock\": \"CLOCK_MONOTONIC\", \"clock_resolution_ns\": %" PRIu64 ", \"seed\": %" PRIu64,
          clock_resolution_ns, settings.seed);
  fputs(", \"arguments\": [", file);
  for (int number = 1; number < argc; number++) {
    if (number > 1) fputs(", ", file);
    write_text(argv[number]);
  }
  fputs("]}\n", file);
  fflush(file);
  free(hosts);
  free(all_cpus);
}

static void write_samples(const struct point *point, enum phase phase, int of_rank, const double *values, int count) {
  fprintf(file,
          "{\"record\": \"samples\", \"variant\": \"%s\", \"quantity\": \"%s\", \"unit\": \"%s\", "
          "\"message_bytes\": %zu, \"pairs\": %d, \"rank\": %d, \"phase\": \"%s\", \"inner\": %d",
          point->variant, point->quantity, point->unit ? point->unit : "ns", point->message_bytes,
          point->pairs ? point->pairs : 1, of_rank, phase == WARMUP ? "warmup" : "measure", point->inner);
  if (point->parameter) fprintf(file, ", \"%s\": %.9g", point->parameter, point->parameter_value);
  fputs(", \"values\": [", file);
  for (int number = 0; number < count; number++) fprintf(file, number ? ", %.9g" : "%.9g", values[number]);
  fputs("]}\n", file);
}

void record(const struct point *point, enum phase phase, const double *values, int count) {
  int *counts = rank ? NULL : allocate((size_t)ranks * sizeof(int));
  MPI_Gather(&count, 1, MPI_INT, counts, 1, MPI_INT, 0, MPI_COMM_WORLD);
  if (rank) {
    if (count > 0) MPI_Send(values, count, MPI_DOUBLE, 0, 0, MPI_COMM_WORLD);
    return;
  }
  for (int sender = 0; sender < ranks; sender++) {
    if (counts[sender] <= 0) continue;
    if (sender == 0) {
      write_samples(point, phase, 0, values, count);
      continue;
    }
    double *received = allocate((size_t)counts[sender] * sizeof(double));
    MPI_Recv(received, counts[sender], MPI_DOUBLE, sender, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    write_samples(point, phase, sender, received, counts[sender]);
    free(received);
  }
  fflush(file);
  free(counts);
}

void record_choice(const struct point *point, const char *chosen, const char *reason) {
  if (rank) return;
  fprintf(file,
          "{\"record\": \"choice\", \"variant\": \"%s\", \"message_bytes\": %zu, \"chosen\": \"%s\", \"reason\": ",
          point->variant, point->message_bytes, chosen);
  write_text(reason);
  fputs("}\n", file);
  fflush(file);
}

void leave_out(const char *variant, size_t message_bytes, const char *format, ...) {
  if (rank) return;
  char reason[256];
  va_list values;
  va_start(values, format);
  vsnprintf(reason, sizeof reason, format, values);
  va_end(values);
  fprintf(file, "{\"record\": \"left_out\", \"variant\": \"%s\", \"message_bytes\": %zu, \"reason\": ", variant,
          message_bytes);
  write_text(reason);
  fputs("}\n", file);
  fflush(file);
}

int write_end(void) {
  if (rank) return 1;
  fputs("{\"record\": \"end\", \"complete\": true}\n", file);
  int written = fflush(file) == 0 && !ferror(file);
  if (file != stdout) written &= fclose(file) == 0;
  file = NULL;
  return written;
}
