// SPDX-License-Identifier: Apache-2.0 OR MIT
// b_eff's rings, as measured by HPC Challenge (Rabenseifner, Koniges 2001): all ranks exchange messages with both
// neighbours at once, in the ring of their numbers (natural) and in rings of random order (random), by two Sendrecv one
// after another, or by Irecv, Isend, Waitall. "time" is that of one exchange with both neighbours, for each rank.
// HPCC seeds its rings from the clock; here they follow from --seed, and are recorded ("order").
#include <stdio.h>
#include <stdlib.h>

#include "common/steps.h"
#include "common/suite.h"

enum {
  TO_RIGHT = 1,
  TO_LEFT = 2,
  RINGS_MAX = 10000,
  LEFT = 0,
  RIGHT = 1
};

static int64_t rings = 10, exchanges = 5;
static const char *listener;

// The neighbours of this rank in a ring. Data sent to the right arrives from the left, and vice versa.
struct neighbours {
  int rank[2];  // of the left and the right neighbour
};

struct data {
  int bytes;
  unsigned char *to[2], *from[2];
};

static void sendrecv(const struct neighbours *neighbours, const struct data *data) {
  const int *neighbour = neighbours->rank;
  MPI_Sendrecv(data->to[RIGHT], data->bytes, MPI_BYTE, neighbour[RIGHT], TO_RIGHT, data->from[LEFT], data->bytes,
               MPI_BYTE, neighbour[LEFT], TO_RIGHT, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Sendrecv(data->to[LEFT], data->bytes, MPI_BYTE, neighbour[LEFT], TO_LEFT, data->from[RIGHT], data->bytes,
               MPI_BYTE, neighbour[RIGHT], TO_LEFT, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void nonblocking(const struct neighbours *neighbours, const struct data *data) {
  const int *neighbour = neighbours->rank;
  MPI_Request requests[4];
  MPI_Irecv(data->from[LEFT], data->bytes, MPI_BYTE, neighbour[LEFT], TO_RIGHT, MPI_COMM_WORLD, &requests[0]);
  MPI_Irecv(data->from[RIGHT], data->bytes, MPI_BYTE, neighbour[RIGHT], TO_LEFT, MPI_COMM_WORLD, &requests[1]);
  MPI_Isend(data->to[RIGHT], data->bytes, MPI_BYTE, neighbour[RIGHT], TO_RIGHT, MPI_COMM_WORLD, &requests[2]);
  MPI_Isend(data->to[LEFT], data->bytes, MPI_BYTE, neighbour[LEFT], TO_LEFT, MPI_COMM_WORLD, &requests[3]);
  MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
}

static void (*const methods[2])(const struct neighbours *, const struct data *) = {sendrecv, nonblocking};
static const char *const method_names[2] = {"sendrecv", "nonblocking"};
static const char *const variants[] = {"natural-sendrecv", "natural-nonblocking", "random-sendrecv",
                                       "random-nonblocking", NULL};

// Ring 0 is the natural ring. The order of ring n depends only on the seed and n.
static void draw_ring(int ring, int *order) {
  uint64_t state = settings.seed;
  state = draw(&state) ^ (uint64_t)ring;
  for (int position = 0; position < ranks; position++) {
    int other = ring ? (int)(draw(&state) % (uint64_t)(position + 1)) : position;
    order[position] = order[other];
    order[other] = position;
  }
}

static struct neighbours find_neighbours(const int *order) {
  int here = 0;
  while (order[here] != rank) here++;
  return (struct neighbours){.rank = {order[(here + ranks - 1) % ranks], order[(here + 1) % ranks]}};
}

// An untimed exchange comes first, so that neighbours are at most one message apart. `number` selects new contents for
// each measurement, so that old messages are detected.
static double exchange_ns(const struct neighbours *neighbours, const struct data *data, int method, int inner,
                          uint64_t number) {
  char what[128];
  for (int side = LEFT; side <= RIGHT; side++)
    fill(data->to[side], (size_t)data->bytes, key_of(rank, neighbours->rank[side], number << 1 | (uint64_t)side));
  methods[method](neighbours, data);
  uint64_t start = now_ns();
  for (int exchange = 0; exchange < inner; exchange++) methods[method](neighbours, data);
  double total_ns = (double)(now_ns() - start);
  for (int side = LEFT; side <= RIGHT; side++) {
    snprintf(what, sizeof what, "%s, message from rank %d", method_names[method], neighbours->rank[side]);
    check(data->from[side], (size_t)data->bytes,
          key_of(neighbours->rank[side], rank, number << 1 | (uint64_t)(side == LEFT)), what);
  }
  return total_ns / inner;
}

// Values for one size, [method][ring][measurement].
struct values {
  double *all;
  struct repetitions agreed;
};

static double *values_of(const struct values *values, int method, int ring) {
  int count = values->agreed.warmup + values->agreed.outer;
  return values->all + ((size_t)method * (size_t)(rings + 1) + (size_t)ring) * (size_t)count;
}

static void record_all(const struct values *values, size_t bytes, const double *orders) {
  const struct repetitions *agreed = &values->agreed;
  for (int ring = 0; ring <= rings; ring++)
    for (int method = 0; method < 2; method++) {
      const char *variant = variants[2 * (ring > 0) + method];
      if (!is_selected(variant)) continue;
      struct point point = {.variant = variant,
                            .quantity = "order",
                            .unit = "rank",
                            .message_bytes = bytes,
                            .inner = 1,
                            .parameter = "ring",
                            .parameter_value = ring};
      record(&point, MEASURE, orders + (size_t)ring * (size_t)ranks, rank == 0 ? ranks : 0);
      point.quantity = "time";
      point.unit = "ns";
      point.inner = agreed->inner;
      const double *from = values_of(values, method, ring);
      record(&point, WARMUP, from, agreed->warmup);
      record(&point, MEASURE, from + agreed->warmup, agreed->outer);
    }
}

// Measures all rings one after another, repeatedly, so that a temporary disturbance does not affect a single ring.
static void measure(size_t bytes) {
  struct data data = {.bytes = (int)bytes};
  for (int side = LEFT; side <= RIGHT; side++) {
    data.to[side] = allocate(bytes);
    data.from[side] = allocate(bytes);
  }
  int *order = allocate((size_t)ranks * sizeof(int));
  double *orders = allocate((size_t)(rings + 1) * (size_t)ranks * sizeof(double));
  draw_ring(0, order);
  struct neighbours neighbours = find_neighbours(order);
  uint64_t number = 0;
  next_step("ring", 0);
  exchange_ns(&neighbours, &data, 0, 1, number++);  // connects
  struct values values = {.agreed = agree_repetitions(exchange_ns(&neighbours, &data, 0, (int)exchanges, number++))};
  if (values.agreed.inner < exchanges) values.agreed.inner = (int)exchanges;
  // The number of measurements is part of b_eff's definition, so --seconds does not reduce it.
  values.agreed.outer = settings.samples;
  int count = values.agreed.warmup + values.agreed.outer;
  values.all = allocate(2 * (size_t)(rings + 1) * (size_t)count * sizeof(double));
  for (int measurement = 0; measurement < count; measurement++)
    for (int ring = 0; ring <= rings; ring++) {
      draw_ring(ring, order);
      neighbours = find_neighbours(order);
      for (int at = 0; at < ranks; at++) orders[ring * ranks + at] = order[at];
      next_step("ring", ring);
      for (int method = 0; method < 2; method++)
        if (is_selected(variants[2 * (ring > 0) + method]))
          values_of(&values, method, ring)[measurement] =
              exchange_ns(&neighbours, &data, method, values.agreed.inner, number++);
    }
  next_step("end", (int)rings);
  record_all(&values, bytes, orders);
  free(values.all);
  free(orders);
  free(order);
  for (int side = LEFT; side <= RIGHT; side++) {
    free(data.to[side]);
    free(data.from[side]);
  }
}

int main(int argc, char **argv) {
  static const struct extra extras[] = {
      {"rings", COUNT, &rings, "random rings (10)"},
      {"exchanges", COUNT, &exchanges, "minimum exchanges averaged in a value (5)"},
      {"steps", TEXT, &listener,
       "Unix socket that gets \"ring N\" before ring N and \"end N\", and must answer with a line"},
      {0},
  };
  // HPCC's sizes and measurements; no warm-up besides the untimed exchange before each.
  static const struct settings defaults = {
      .sizes = {8, 2000000}, .size_count = 2, .samples = 3, .seconds = 0.5, .warmup = 0, .seed = 1};
  begin(argc, argv,
        &(struct program){.name = "beff",
                          .summary = "b_eff: exchange with both neighbours in natural and random rings "
                                     "(sizes 8,2000000; 3 samples; no warm-up)",
                          .variants = variants,
                          .extras = extras,
                          .defaults = &defaults,
                          .ranks_min = 2});
  if (rings > RINGS_MAX) usage_error("--rings must be at most %d, not %" PRId64, RINGS_MAX, rings);
  if (exchanges < 1 || exchanges > INT32_MAX) usage_error("--exchanges must be 1 or more, not %" PRId64, exchanges);
  if (settings.walk_bytes) usage_error("--walk-bytes does not apply to rings: b_eff reuses the same messages");
  open_steps(listener);
  for (int size = 0; size < settings.size_count; size++) measure(settings.sizes[size]);
  close_steps();
  finish();
}
