// SPDX-License-Identifier: Apache-2.0 OR MIT
// b_eff's rings, as HPC Challenge measures them (Rabenseifner, Koniges 2001): all ranks exchange messages with both
// neighbours at once, in the ring of their numbers (natural) and in rings of random order (random), by two Sendrecv one
// after the other, or by Irecv, Isend, Waitall. "time" is that of one exchange with both neighbours, of each rank; the
// rest is arithmetic. HPCC draws its rings from the clock; here they follow from --seed, and are recorded ("order").
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

// The place of one rank in one ring. Data to the right comes from the left, and the other way round.
struct place {
  int neighbour[2];
};

struct data {
  int bytes;
  unsigned char *to[2], *from[2];
};

static void sendrecv(const struct place *place, const struct data *data) {
  const int *neighbour = place->neighbour;
  MPI_Sendrecv(data->to[RIGHT], data->bytes, MPI_BYTE, neighbour[RIGHT], TO_RIGHT, data->from[LEFT], data->bytes,
               MPI_BYTE, neighbour[LEFT], TO_RIGHT, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Sendrecv(data->to[LEFT], data->bytes, MPI_BYTE, neighbour[LEFT], TO_LEFT, data->from[RIGHT], data->bytes,
               MPI_BYTE, neighbour[RIGHT], TO_LEFT, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void nonblocking(const struct place *place, const struct data *data) {
  const int *neighbour = place->neighbour;
  MPI_Request requests[4];
  MPI_Irecv(data->from[LEFT], data->bytes, MPI_BYTE, neighbour[LEFT], TO_RIGHT, MPI_COMM_WORLD, &requests[0]);
  MPI_Irecv(data->from[RIGHT], data->bytes, MPI_BYTE, neighbour[RIGHT], TO_LEFT, MPI_COMM_WORLD, &requests[1]);
  MPI_Isend(data->to[RIGHT], data->bytes, MPI_BYTE, neighbour[RIGHT], TO_RIGHT, MPI_COMM_WORLD, &requests[2]);
  MPI_Isend(data->to[LEFT], data->bytes, MPI_BYTE, neighbour[LEFT], TO_LEFT, MPI_COMM_WORLD, &requests[3]);
  MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
}

static void (*const methods[2])(const struct place *, const struct data *) = {sendrecv, nonblocking};
static const char *const method_names[2] = {"sendrecv", "nonblocking"};
static const char *const variants[] = {"natural-sendrecv", "natural-nonblocking", "random-sendrecv",
                                       "random-nonblocking", NULL};

// Ring 0 is the natural one. The order of ring n follows from the seed and n alone.
static void draw_ring(int ring, int *order) {
  uint64_t state = settings.seed;
  state = draw(&state) ^ (uint64_t)ring;
  for (int place = 0; place < ranks; place++) {
    int other = ring ? (int)(draw(&state) % (uint64_t)(place + 1)) : place;
    order[place] = order[other];
    order[other] = place;
  }
}

static struct place find_place(const int *order) {
  int here = 0;
  while (order[here] != rank) here++;
  return (struct place){.neighbour = {order[(here + ranks - 1) % ranks], order[(here + 1) % ranks]}};
}

// One exchange outside the clock first: neighbours are then no further apart than one message. Fresh contents each
// time, by `number`, so that what comes is this measurement's.
static double exchange_ns(const struct place *place, const struct data *data, int method, int inner, uint64_t number) {
  char what[128];
  for (int side = LEFT; side <= RIGHT; side++)
    fill(data->to[side], (size_t)data->bytes, key_of(rank, place->neighbour[side], number << 1 | (uint64_t)side));
  methods[method](place, data);
  uint64_t start = now_ns();
  for (int exchange = 0; exchange < inner; exchange++) methods[method](place, data);
  double total_ns = (double)(now_ns() - start);
  for (int side = LEFT; side <= RIGHT; side++) {
    snprintf(what, sizeof what, "%s, message from rank %d", method_names[method], place->neighbour[side]);
    check(data->from[side], (size_t)data->bytes,
          key_of(place->neighbour[side], rank, number << 1 | (uint64_t)(side == LEFT)), what);
  }
  return total_ns / inner;
}

// Values of one size, [method][ring][measurement].
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
      if (!wanted(variant)) continue;
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

// All rings in turn, then again, so that what disturbs the machine for a while does not fall on one ring alone.
static void measure(size_t bytes) {
  struct data data = {.bytes = (int)bytes};
  for (int side = LEFT; side <= RIGHT; side++) {
    data.to[side] = allocate(bytes);
    data.from[side] = allocate(bytes);
  }
  int *order = allocate((size_t)ranks * sizeof(int));
  double *orders = allocate((size_t)(rings + 1) * (size_t)ranks * sizeof(double));
  draw_ring(0, order);
  struct place place = find_place(order);
  uint64_t number = 0;
  next_step("ring", 0);
  exchange_ns(&place, &data, 0, 1, number++);  // connects
  struct values values = {.agreed = agree_repetitions(exchange_ns(&place, &data, 0, (int)exchanges, number++))};
  if (values.agreed.inner < exchanges) values.agreed.inner = (int)exchanges;
  // The number of measurements is part of the definition: no shortage of time makes it smaller.
  values.agreed.outer = settings.samples;
  int count = values.agreed.warmup + values.agreed.outer;
  values.all = allocate(2 * (size_t)(rings + 1) * (size_t)count * sizeof(double));
  for (int measurement = 0; measurement < count; measurement++)
    for (int ring = 0; ring <= rings; ring++) {
      draw_ring(ring, order);
      place = find_place(order);
      for (int at = 0; at < ranks; at++) orders[ring * ranks + at] = order[at];
      next_step("ring", ring);
      for (int method = 0; method < 2; method++)
        if (wanted(variants[2 * (ring > 0) + method]))
          values_of(&values, method, ring)[measurement] =
              exchange_ns(&place, &data, method, values.agreed.inner, number++);
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
      {"exchanges", COUNT, &exchanges, "of which a value is the mean, at least (5)"},
      {"steps", TEXT, &listener,
       "Unix socket that is told \"ring N\" before ring N and \"end N\", and must answer with a line"},
      {0},
  };
  // HPCC's sizes, measurements and warm-up (one exchange before each, besides).
  settings.sizes[0] = 8;
  settings.sizes[1] = 2000000;
  settings.size_count = 2;
  settings.samples = 3;
  settings.warmup = 0;
  begin(argc, argv,
        &(struct program){.name = "beff",
                          .summary = "b_eff: exchange with both neighbours in natural and random rings "
                                     "(sizes 8,2000000; 3 samples; no warm-up)",
                          .variants = variants,
                          .extras = extras,
                          .ranks_min = 2});
  if (rings > RINGS_MAX) wrong_use("--rings must be at most %d, not %" PRId64, RINGS_MAX, rings);
  if (exchanges < 1 || exchanges > INT32_MAX) wrong_use("--exchanges must be 1 or more, not %" PRId64, exchanges);
  if (settings.walk_bytes) wrong_use("--walk is not for rings: b_eff's messages are always the same ones");
  open_steps(listener);
  for (int size = 0; size < settings.size_count; size++) measure(settings.sizes[size]);
  close_steps();
  finish();
}
