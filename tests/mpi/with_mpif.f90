! SPDX-License-Identifier: Apache-2.0 OR MIT
! Blocking and non-blocking messages and a collective in place, by mpif.h; with_f08.f90 does the same by mpi_f08. With an
! argument the ranks wait first for messages that nobody sends.
program with_mpif
  implicit none
  include 'mpif.h'
  integer :: ierror, rank, round, request, values(4), received(4)
  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  if (command_argument_count() > 0) call MPI_Recv(received, 4, MPI_INTEGER, 1 - rank, 9, MPI_COMM_WORLD, &
                                                  MPI_STATUS_IGNORE, ierror)
  values = rank + 1
  do round = 1, 10
    call MPI_Irecv(received, 4, MPI_INTEGER, 1 - rank, 3, MPI_COMM_WORLD, request, ierror)
    call MPI_Send(values, 4, MPI_INTEGER, 1 - rank, 3, MPI_COMM_WORLD, ierror)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
  end do
  call MPI_Allreduce(MPI_IN_PLACE, values, 4, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierror)
  call MPI_Allgather(MPI_IN_PLACE, 7, MPI_DATATYPE_NULL, values, 2, MPI_INTEGER, MPI_COMM_WORLD, ierror)
  if (rank == 0) print *, 'sum', values(1)
  call MPI_Finalize(ierror)
end program
