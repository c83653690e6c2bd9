// SPDX-License-Identifier: Apache-2.0 OR MIT
// How long each operation of MPI takes two ranks that have nothing else to do: the third longest of a few times, on the
// slower rank, so that what waits for a timer of the provider's now and then shows it, and a busy machine does not.
#include "check.h"

#define TIMES 7
#define LONGEST_LEFT_OUT 2
#define AT_ONCE 8

static char *out, *in, *attached;
// One for fences and one for the other ways to synchronise, which must not be mixed.
static MPI_Win fenced, window;
static MPI_Group others;
static MPI_Comm neighbours;
static int other;

// What is timed: an operation with a message of so many bytes, from rank 0 to rank 1 where it has a direction.
struct operation {
  const char *name;
  void (*run)(int bytes);
  int is_sized;
};

static void receive(int bytes) { MPI_Recv(in, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE); }

static void send(int bytes) { rank ? receive(bytes) : MPI_Send(out, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD); }

static void ssend(int bytes) { rank ? receive(bytes) : MPI_Ssend(out, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD); }

static void bsend(int bytes) { rank ? receive(bytes) : MPI_Bsend(out, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD); }

// The receiver says that it has posted its receive.
static void rsend(int bytes) {
  if (!rank) {
    MPI_Recv(NULL, 0, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Rsend(out, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
    return;
  }
  MPI_Request request;
  MPI_Irecv(in, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request);
  MPI_Send(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void isend(int bytes) {
  MPI_Request requests[AT_ONCE];
  for (int each = 0; each < AT_ONCE; each++)
    if (rank) MPI_Irecv(in + (size_t)each * (size_t)bytes, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &requests[each]);
    else MPI_Isend(out, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[each]);
  MPI_Waitall(AT_ONCE, requests, MPI_STATUSES_IGNORE);
}

static void issend(int bytes) {
  MPI_Request request;
  if (rank) MPI_Irecv(in, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request);
  else MPI_Issend(out, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request);
  for (int done = 0; !done;) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
}

// Half of the memory that the message lies in, 8 bytes of each 16.
static void vector(int bytes) {
  MPI_Datatype type;
  MPI_Type_vector(bytes / 8, 8, 16, MPI_BYTE, &type);
  MPI_Type_commit(&type);
  rank ? MPI_Recv(in, 1, type, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE) : MPI_Send(out, 1, type, 1, 1, MPI_COMM_WORLD);
  MPI_Type_free(&type);
}

#if MPI_VERSION >= 4
static void partitioned(int bytes) {
  MPI_Request request;
  if (rank) MPI_Precv_init(in, 4, bytes / 4, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  else MPI_Psend_init(out, 4, bytes / 4, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  MPI_Start(&request);
  for (int part = 0; part < 4 && !rank; part++) MPI_Pready(part, request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Request_free(&request);
}
#endif

static void persistent(int bytes) {
  MPI_Request request;
  if (rank) MPI_Recv_init(in, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request);
  else MPI_Send_init(out, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request);
  MPI_Start(&request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Request_free(&request);
}

static void probed(int bytes) {
  if (!rank) {
    MPI_Send(out, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
    return;
  }
  MPI_Message message;
  MPI_Mprobe(0, 1, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
  MPI_Mrecv(in, bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE);
}

static void exchange(int bytes) {
  MPI_Sendrecv(out, bytes, MPI_BYTE, other, 1, in, bytes, MPI_BYTE, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void barrier(int bytes) {
  (void)bytes;
  MPI_Barrier(MPI_COMM_WORLD);
}

static void bcast(int bytes) { MPI_Bcast(rank ? in : out, bytes, MPI_BYTE, 0, MPI_COMM_WORLD); }
static void reduce(int bytes) { MPI_Reduce(out, in, bytes, MPI_BYTE, MPI_BXOR, 0, MPI_COMM_WORLD); }
static void allreduce(int bytes) { MPI_Allreduce(out, in, bytes, MPI_BYTE, MPI_BXOR, MPI_COMM_WORLD); }
static void gather(int bytes) { MPI_Gather(out, bytes / 2, MPI_BYTE, in, bytes / 2, MPI_BYTE, 0, MPI_COMM_WORLD); }
static void scatter(int bytes) { MPI_Scatter(out, bytes / 2, MPI_BYTE, in, bytes / 2, MPI_BYTE, 0, MPI_COMM_WORLD); }
static void alltoall(int bytes) { MPI_Alltoall(out, bytes / 2, MPI_BYTE, in, bytes / 2, MPI_BYTE, MPI_COMM_WORLD); }
static void scan(int bytes) { MPI_Scan(out, in, bytes, MPI_BYTE, MPI_BXOR, MPI_COMM_WORLD); }

static void exscan(int bytes) { MPI_Exscan(out, in, bytes, MPI_BYTE, MPI_BXOR, MPI_COMM_WORLD); }

static void allgather(int bytes) { MPI_Allgather(out, bytes / 2, MPI_BYTE, in, bytes / 2, MPI_BYTE, MPI_COMM_WORLD); }

static void reduce_scatter(int bytes) {
  MPI_Reduce_scatter_block(out, in, bytes / 2, MPI_BYTE, MPI_BXOR, MPI_COMM_WORLD);
}

static void neighbour_alltoall(int bytes) {
  MPI_Neighbor_alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, neighbours);
}

static void ibarrier(int bytes) {
  (void)bytes;
  MPI_Request request;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void ibcast(int bytes) {
  MPI_Request request;
  MPI_Ibcast(rank ? in : out, bytes, MPI_BYTE, 0, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void iallreduce(int bytes) {
  MPI_Request request;
  MPI_Iallreduce(out, in, bytes, MPI_BYTE, MPI_BXOR, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void ialltoall(int bytes) {
  MPI_Request request;
  MPI_Ialltoall(out, bytes / 2, MPI_BYTE, in, bytes / 2, MPI_BYTE, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void comm_dup(int bytes) {
  (void)bytes;
  MPI_Comm copy;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  MPI_Comm_free(&copy);
}

static void win_create(int bytes) {
  (void)bytes;
  MPI_Win made;
  MPI_Win_create(in, 8, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &made);
  MPI_Win_free(&made);
}

// One-sided operations of rank 0 on rank 1's memory, in one of two windows.
static int64_t one = 1, none, before;

static void put(int bytes, MPI_Win win) { MPI_Put(out, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, win); }
static void get(int bytes, MPI_Win win) { MPI_Get(in, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, win); }

static void accumulate(int bytes, MPI_Win win) {
  MPI_Accumulate(out, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, MPI_BXOR, win);
}

static void get_accumulate(int bytes, MPI_Win win) {
  MPI_Get_accumulate(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, MPI_BXOR, win);
}

static void fetch_and_op(int bytes, MPI_Win win) {
  (void)bytes;
  MPI_Fetch_and_op(&one, &before, MPI_INT64_T, 1, 0, MPI_SUM, win);
}

static void compare_and_swap(int bytes, MPI_Win win) {
  (void)bytes;
  MPI_Compare_and_swap(&one, &none, &before, MPI_INT64_T, 1, 0, win);
}

static void with_fence(void (*act)(int, MPI_Win), int bytes) {
  if (!rank) act(bytes, fenced);
  MPI_Win_fence(0, fenced);
}

static void with_post(void (*act)(int, MPI_Win), int bytes) {
  if (rank) {
    MPI_Win_post(others, 0, window);
    MPI_Win_wait(window);
    return;
  }
  MPI_Win_start(others, 0, window);
  act(bytes, window);
  MPI_Win_complete(window);
}

static void with_lock(void (*act)(int, MPI_Win), int bytes) {
  if (rank) return;
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window);
  act(bytes, window);
  MPI_Win_unlock(1, window);
}

static void with_flush(void (*act)(int, MPI_Win), int bytes) {
  if (rank) return;
  MPI_Win_lock_all(0, window);
  act(bytes, window);
  MPI_Win_flush(1, window);
  act(bytes, window);
  MPI_Win_flush_local(1, window);
  MPI_Win_unlock_all(window);
}

static void rput_flush(int bytes) {
  if (rank) return;
  MPI_Request request;
  MPI_Win_lock_all(0, window);
  MPI_Rput(out, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, window, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Win_unlock_all(window);
}

static void put_fence(int bytes) { with_fence(put, bytes); }
static void get_fence(int bytes) { with_fence(get, bytes); }
static void accumulate_fence(int bytes) { with_fence(accumulate, bytes); }
static void fetch_fence(int bytes) { with_fence(fetch_and_op, bytes); }
static void put_post(int bytes) { with_post(put, bytes); }
static void get_post(int bytes) { with_post(get, bytes); }
static void accumulate_post(int bytes) { with_post(accumulate, bytes); }
static void put_lock(int bytes) { with_lock(put, bytes); }
static void get_lock(int bytes) { with_lock(get, bytes); }
static void accumulate_lock(int bytes) { with_lock(accumulate, bytes); }
static void get_accumulate_lock(int bytes) { with_lock(get_accumulate, bytes); }
static void fetch_lock(int bytes) { with_lock(fetch_and_op, bytes); }
static void swap_lock(int bytes) { with_lock(compare_and_swap, bytes); }
static void put_flush(int bytes) { with_flush(put, bytes); }
static void get_flush(int bytes) { with_flush(get, bytes); }
static void fetch_flush(int bytes) { with_flush(fetch_and_op, bytes); }
static void swap_flush(int bytes) { with_flush(compare_and_swap, bytes); }

static const struct operation OPERATIONS[] = {
    {"send", send, 1},
    {"ssend", ssend, 1},
    {"bsend", bsend, 1},
    {"rsend", rsend, 1},
    {"isend", isend, 1},
    {"issend", issend, 1},
    {"vector", vector, 1},
#if MPI_VERSION >= 4
    {"partitioned", partitioned, 1},
#endif
    {"persistent", persistent, 1},
    {"probed", probed, 1},
    {"exchange", exchange, 1},
    {"barrier", barrier, 0},
    {"bcast", bcast, 1},
    {"reduce", reduce, 1},
    {"allreduce", allreduce, 1},
    {"gather", gather, 1},
    {"scatter", scatter, 1},
    {"alltoall", alltoall, 1},
    {"scan", scan, 1},
    {"exscan", exscan, 1},
    {"allgather", allgather, 1},
    {"reduce_scatter", reduce_scatter, 1},
    {"neighbour_alltoall", neighbour_alltoall, 1},
    {"ibarrier", ibarrier, 0},
    {"ibcast", ibcast, 1},
    {"iallreduce", iallreduce, 1},
    {"ialltoall", ialltoall, 1},
    {"comm_dup", comm_dup, 0},
    {"win_create", win_create, 0},
    {"put_fence", put_fence, 1},
    {"get_fence", get_fence, 1},
    {"accumulate_fence", accumulate_fence, 1},
    {"fetch_fence", fetch_fence, 0},
    {"put_post", put_post, 1},
    {"get_post", get_post, 1},
    {"accumulate_post", accumulate_post, 1},
    {"put_lock", put_lock, 1},
    {"get_lock", get_lock, 1},
    {"accumulate_lock", accumulate_lock, 1},
    {"get_accumulate_lock", get_accumulate_lock, 1},
    {"fetch_lock", fetch_lock, 0},
    {"swap_lock", swap_lock, 0},
    {"put_flush", put_flush, 1},
    {"get_flush", get_flush, 1},
    {"rput_flush", rput_flush, 1},
    {"fetch_flush", fetch_flush, 0},
    {"swap_flush", swap_flush, 0},
};
static const int SIZES[] = {8, 2048, 8192, 16384, 20000, 65536, 300000};

static int by_value(const void *left, const void *right) {
  double first = *(const double *)left, second = *(const double *)right;
  return (first > second) - (first < second);
}

static double time_of(const struct operation *operation, int bytes) {
  double times[TIMES], slower[TIMES];
  for (int each = 0; each < TIMES; each++) {
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    operation->run(bytes);
    times[each] = MPI_Wtime() - began;
  }
  MPI_Allreduce(times, slower, TIMES, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  qsort(slower, TIMES, sizeof *slower, by_value);
  return slower[TIMES - 1 - LONGEST_LEFT_OUT] * 1e6;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks != 2) fail("takes two ranks, not %d", ranks);
  other = 1 - rank;
  size_t most = 300000, attached_bytes = 4 * (most + MPI_BSEND_OVERHEAD);
  out = memset(allocate(2 * most), 1, 2 * most);
  in = memset(allocate(AT_ONCE * most), 2, AT_ONCE * most);
  attached = allocate(attached_bytes);
  MPI_Buffer_attach(attached, (int)attached_bytes);
  void *memory;
  MPI_Win_allocate((MPI_Aint)most, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &fenced);
  MPI_Win_allocate((MPI_Aint)most, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
  MPI_Group everybody;
  MPI_Comm_group(MPI_COMM_WORLD, &everybody);
  MPI_Group_incl(everybody, 1, &other, &others);
  int weight = 1;
  MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &other, &weight, 1, &other, &weight, MPI_INFO_NULL, 0, &neighbours);
  MPI_Win_fence(0, fenced);
  for (size_t each = 0; each < sizeof OPERATIONS / sizeof *OPERATIONS; each++)
    for (size_t size = 0; size < sizeof SIZES / sizeof *SIZES; size++) {
      if (size && !OPERATIONS[each].is_sized) continue;
      double us = time_of(&OPERATIONS[each], SIZES[size]);
      if (!rank)
        printf("{\"test\": \"timers\", \"operation\": \"%s\", \"bytes\": %d, \"us\": %.1f}\n", OPERATIONS[each].name,
               SIZES[size], us);
    }
  MPI_Win_fence(MPI_MODE_NOSUCCEED, fenced);
  MPI_Win_free(&fenced);
  MPI_Win_free(&window);
  MPI_Comm_free(&neighbours);
  MPI_Group_free(&others);
  MPI_Group_free(&everybody);
  void *detached;
  int detached_bytes;
  MPI_Buffer_detach(&detached, &detached_bytes);
  MPI_Finalize();
  return 0;
}
