! SPDX-License-Identifier: Apache-2.0 OR MIT
! As with_mpif.f90, by the module mpi_f08 and without ierror.
program with_f08
  use mpi_f08
  implicit none
  integer :: rank, round, values(4), received(4)
  type(MPI_Request) :: request
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  values = rank + 1
  do round = 1, 10
    call MPI_Irecv(received, 4, MPI_INTEGER, 1 - rank, 3, MPI_COMM_WORLD, request)
    call MPI_Send(values, 4, MPI_INTEGER, 1 - rank, 3, MPI_COMM_WORLD)
    call MPI_Wait(request, MPI_STATUS_IGNORE)
  end do
  call MPI_Allreduce(MPI_IN_PLACE, values, 4, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  call MPI_Allgather(MPI_IN_PLACE, 7, MPI_DATATYPE_NULL, values, 2, MPI_INTEGER, MPI_COMM_WORLD)
  if (rank == 0) print *, 'sum', values(1)
  call MPI_Finalize()
end program
