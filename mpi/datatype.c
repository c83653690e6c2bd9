// SPDX-License-Identifier: Apache-2.0 OR MIT
// Half a round trip of m bytes that are not contiguous in memory, compared with contiguous ones. Both sides use the
// same derived datatype. Every byte, gaps included, is checked against a table of pieces made without MPI.
// vector-8, vector-512: pieces of 8 or 512 bytes, with gaps of the same length. indexed: pieces of 1 to 16 words of 8
// bytes and gaps of 1 to 16, drawn from the seed. struct: 2, 4 and 2 bytes with C's alignment, in 12.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/measure.h"

enum {
  WORD = 8,
  WORDS_MAX = 16,    // of a piece or a gap of `indexed`
  STRUCT_BYTES = 12  // with padding
};

// The pieces of the message, in order.
static struct {
  size_t *offsets, *lengths;
  size_t count, extent;
} pieces;
static size_t bytes;
static struct pair pair;
static MPI_Datatype type;
static int elements;  // of `type` in a message
static unsigned char *out, *in, *packed;
static uint64_t epoch;

static void add_piece(size_t gap, size_t length) {
  pieces.offsets[pieces.count] = pieces.extent;
  pieces.lengths[pieces.count++] = length;
  pieces.extent += length + gap;
}

static void contiguous(void) {
  add_piece(0, bytes);
  elements = (int)bytes;
  MPI_Type_dup(MPI_BYTE, &type);
}

static void vector(int piece) {
  elements = 1;
  for (size_t at = 0; at < bytes; at += (size_t)piece) add_piece((size_t)piece, (size_t)piece);
  MPI_Type_vector((int)pieces.count, piece / WORD, 2 * piece / WORD, MPI_DOUBLE, &type);
}

static void vector_8(void) { vector(WORD); }
static void vector_512(void) { vector(512); }

static void indexed(void) {
  uint64_t state = settings.seed;
  size_t left = bytes / WORD;
  int *lengths = allocate((left + 1) * sizeof(int)), *offsets = allocate((left + 1) * sizeof(int));
  for (int number = 0; left; number++) {
    size_t length = draw(&state) % WORDS_MAX + 1, gap = draw(&state) % WORDS_MAX + 1;
    if (length > left) length = left;
    lengths[number] = (int)length, offsets[number] = (int)(pieces.extent / WORD);
    add_piece(gap * WORD, length * WORD);
    left -= length;
  }
  elements = 1;
  MPI_Type_indexed((int)pieces.count, lengths, offsets, MPI_DOUBLE, &type);
  free(lengths);
  free(offsets);
}

static void structure(void) {
  MPI_Datatype parts[] = {MPI_INT16_T, MPI_INT32_T, MPI_INT16_T}, unpadded;
  MPI_Aint offsets[] = {0, 4, 8};
  for (size_t at = 0; at < bytes; at += WORD) {
    add_piece(2, 2);
    add_piece(0, 4);
    add_piece(2, 2);
  }
  elements = (int)(bytes / WORD);
  MPI_Type_create_struct(3, (int[]){1, 1, 1}, offsets, parts, &unpadded);
  MPI_Type_create_resized(unpadded, 0, STRUCT_BYTES, &type);
  MPI_Type_free(&unpadded);
}

static const struct kind {
  const char *variant;
  void (*describe)(void);
  size_t multiple;  // sizes must be multiples of it
} kinds[] = {{"contiguous", contiguous, 1},
             {"vector-8", vector_8, WORD},
             {"vector-512", vector_512, 512},
             {"indexed", indexed, WORD},
             {"struct", structure, WORD}};
enum {
  KINDS = sizeof kinds / sizeof *kinds
};
static const struct kind *kind;

static void send_one(void) { MPI_Send(out, elements, type, pair.partner, 0, MPI_COMM_WORLD); }
static void receive_one(void) { MPI_Recv(in, elements, type, pair.partner, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE); }

static void pingpong(int count) {
  for (int number = 0; number < count && pair.first; number++) {
    send_one();
    receive_one();
  }
  for (int number = 0; number < count && !pair.first; number++) {
    receive_one();
    send_one();
  }
}

static void fill_out(void) {
  const unsigned char *from = packed;
  fill(packed, bytes, key_of(rank, pair.partner, ++epoch));
  for (size_t piece = 0; piece < pieces.count; from += pieces.lengths[piece++])
    memcpy(out + pieces.offsets[piece], from, pieces.lengths[piece]);
  // Gaps must keep this value. Contents change with each series, so that old messages are detected.
  memset(in, (int)(0x55 + epoch), pieces.extent);
}

static void check_gap(size_t from, size_t to) {
  for (size_t at = from; at < to; at++)
    if (in[at] != (unsigned char)(0x55 + epoch))
      wrong_result("%s: byte %zu, beside the pieces, was overwritten", kind->variant, at);
}

static void check_in(void) {
  unsigned char *to = packed;
  size_t end = 0;
  for (size_t piece = 0; piece < pieces.count; to += pieces.lengths[piece++]) {
    check_gap(end, pieces.offsets[piece]);
    memcpy(to, in + pieces.offsets[piece], pieces.lengths[piece]);
    end = pieces.offsets[piece] + pieces.lengths[piece];
  }
  check_gap(end, pieces.extent);
  char what[64];
  snprintf(what, sizeof what, "%s, message from rank %d", kind->variant, pair.partner);
  check(packed, bytes, key_of(pair.partner, rank, epoch), what);
}

static void measure_one(size_t size) {
  // Both buffers with their gaps, the packed message and the table of pieces. `indexed` needs most: at worst a gap of
  // 16 words for each piece of one word.
  uint64_t needed_bytes = 11 * (uint64_t)size;
  if (kind->describe == contiguous) needed_bytes = 4 * (uint64_t)size;
  if (kind->describe == indexed)
    needed_bytes = (uint64_t)size * 2 * (WORDS_MAX + 1) + 3 * (uint64_t)size / 2 * sizeof(size_t);
  if (!is_selected(kind->variant)) return;
  if (size % kind->multiple) {
    leave_out(kind->variant, size, "its messages are multiples of %zu bytes", kind->multiple);
    return;
  }
  if (!fits(kind->variant, size, needed_bytes)) return;
  bytes = size;
  size_t pieces_max = kind->describe == contiguous ? 1 : 3 * size / WORD + 1;
  pieces.offsets = allocate(pieces_max * sizeof(size_t)), pieces.lengths = allocate(pieces_max * sizeof(size_t));
  pieces.count = pieces.extent = 0;
  kind->describe();
  MPI_Type_commit(&type);
  out = allocate(pieces.extent), in = allocate(pieces.extent), packed = allocate(bytes);
  measure(&(struct pattern){
      .point = {.variant = kind->variant, .quantity = "half_round_trip", .message_bytes = size, .pairs = pair.count},
      .idle = pair.idle,
      .timed = pair.first,
      .divide_by = 2,
      .unit = 1,
      .steady = pair.steady,
      .run = pingpong,
      .open = fill_out,
      .close = check_in});
  MPI_Type_free(&type);
  free(out);
  free(in);
  free(packed);
  free(pieces.offsets);
  free(pieces.lengths);
}

int main(int argc, char **argv) {
  const char *variants[KINDS + 1] = {NULL};
  for (int number = 0; number < KINDS; number++) variants[number] = kinds[number].variant;
  begin(argc, argv,
        &(struct program){.name = "datatype",
                          .summary = "half a round trip of derived datatypes, and of contiguous bytes",
                          .variants = variants,
                          .extras = (struct extra[]){PAIRS_OPTION, MEMORY_OPTION, {0}},
                          .threads = MPI_THREAD_SINGLE,
                          .ranks_min = 2,
                          .needs_even_ranks = 1});
  if (settings.walk_bytes) usage_error("--walk-bytes does not apply to datatypes: their buffers are reused");
  pair = join_pairs();
  for (int number = 0; number < KINDS; number++) {
    kind = &kinds[number];
    for (int size = 0; size < settings.size_count; size++) measure_one(settings.sizes[size]);
  }
  finish();
}
