// SPDX-License-Identifier: Apache-2.0 OR MIT
// A provider of another version, for jobs whose hosts have not installed the same: loads the provider, whose file is
// the macro PROVIDER, and lets its endpoints' addresses have the version before. Processes with it understand each
// other.
#include <dlfcn.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/providers/fi_prov.h>
#include <stdlib.h>
#include <string.h>

// Of the version in an address, as crates/provider/src/address.rs says.
enum {
  VERSION_AT = 4
};

static size_t address_bytes;
static struct fi_provider provider;
// As the provider has them, and as its objects have them here.
static struct fi_provider *inner;
static struct fi_ops_fabric inner_fabric, fabric_ops;
static struct fi_ops_domain inner_domain, domain_ops;
static struct fi_ops_cm inner_cm, cm_ops;
static struct fi_ops_av inner_av, av_ops;
static size_t (*inner_reached)(char *, size_t);

static int other_getname(struct fid *fid, void *name, size_t *length) {
  size_t room = *length;
  int status = inner_cm.getname(fid, name, length);
  address_bytes = *length;
  if (room > VERSION_AT) ((char *)name)[VERSION_AT]--;
  return status;
}

static int other_insert(struct fid_av *av, const void *names, size_t count, fi_addr_t *numbers, uint64_t flags,
                        void *context) {
  char *own = malloc(count * address_bytes + 1);
  memcpy(own, names, count * address_bytes);
  for (size_t i = 0; i < count; i++) own[i * address_bytes + VERSION_AT]++;
  int inserted = inner_av.insert(av, own, count, numbers, flags, context);
  free(own);
  return inserted;
}

static int other_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context) {
  int status = inner_domain.endpoint(domain, info, ep, context);
  if (status) return status;
  inner_cm = cm_ops = *(*ep)->cm;
  cm_ops.getname = other_getname;
  (*ep)->cm = &cm_ops;
  return 0;
}

static int other_av(struct fid_domain *domain, struct fi_av_attr *attributes, struct fid_av **av, void *context) {
  int status = inner_domain.av_open(domain, attributes, av, context);
  if (status) return status;
  inner_av = av_ops = *(*av)->ops;
  av_ops.insert = other_insert;
  (*av)->ops = &av_ops;
  return 0;
}

static int other_domain(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain, void *context) {
  int status = inner_fabric.domain(fabric, info, domain, context);
  if (status) return status;
  inner_domain = domain_ops = *(*domain)->ops;
  domain_ops.endpoint = other_endpoint;
  domain_ops.av_open = other_av;
  (*domain)->ops = &domain_ops;
  return 0;
}

static int other_fabric(struct fi_fabric_attr *attributes, struct fid_fabric **fabric, void *context) {
  int status = inner->fabric(attributes, fabric, context);
  if (status) return status;
  inner_fabric = fabric_ops = *(*fabric)->ops;
  fabric_ops.domain = other_domain;
  (*fabric)->ops = &fabric_ops;
  return 0;
}

// As the provider's, for witnesses.
size_t barewire_reached(char *text, size_t room) { return inner_reached(text, room); }

struct fi_provider *fi_prov_ini(void) {
  void *library = dlopen(PROVIDER, RTLD_NOW | RTLD_LOCAL);
  if (!library) return NULL;
  inner_reached = (size_t(*)(char *, size_t))dlsym(library, "barewire_reached");
  inner = ((struct fi_provider * (*)(void)) dlsym(library, "fi_prov_ini"))();
  if (!inner) return NULL;
  provider = *inner;
  provider.fabric = other_fabric;
  return &provider;
}
