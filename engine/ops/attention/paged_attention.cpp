#include "engine/ops/attention/paged_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "engine/ops/attention/paged_attention.kernels.h"
#include "engine/ops/backend/pick_kernel.h"

namespace trireme {
namespace {

static_assert(kPagedDropAlignment % cpu::kPagedKeys == 0,
              "dropping leading tokens would change the order of sums");

// dtype: of the other operands.
void check_pools(const Ctx& ctx, const char* op, const ConstTensor& k_pool,
                 const ConstTensor& v_pool, const PagedScales& scales, DType dtype) {
  TRIREME_CHECK(k_pool.rank() == 4 && k_pool.size(2) > 0, op, ": k_pool is ", k_pool.shape(),
                ", expected (B, Hkv, P, D)");
  const DType held = k_pool.dtype();
  const bool codes = scales.codes != KvCodes::kNone;
  const bool wide = held == DType::kF64 || dtype == DType::kF64;
  TRIREME_CHECK(codes ? held == DType::kU8 && !wide
                      : held == dtype || (ctx.gpu == nullptr && !wide && is_float(held)),
                op, ": pools of ", held, codes ? " codes" : "",
                " are not supported with operands of ", dtype);
  check_operand(op, "k_pool", k_pool, held, k_pool.shape());
  check_operand(op, "v_pool", v_pool, held, k_pool.shape());
  if (!codes) return;
  const Shape rows{k_pool.size(0), k_pool.size(1), k_pool.size(2)};
  check_operand(op, "k_scale", scales.k, DType::kF32, rows);
  check_operand(op, "v_scale", scales.v, DType::kF32, rows);
}

cpu::PagedPools pools_of(const ConstTensor& k_pool, const ConstTensor& v_pool,
                         const PagedScales& scales) {
  const auto pool = [&](const ConstTensor& rows, const Tensor& scale) {
    return cpu::PagedPool{const_cast<void*>(static_cast<const void*>(rows.raw())),
                          scales.codes == KvCodes::kNone ? nullptr : scale.as<float>()};
  };
  return {.k = pool(k_pool, scales.k),
          .v = pool(v_pool, scales.v),
          .type = {k_pool.dtype(), scales.codes},
          .scratch = nullptr,
          .items = nullptr};
}

// Maximum number of parts of a sequence of at most `keys` keys.
int64_t max_parts(int64_t keys) {
  return std::clamp<int64_t>(ceil_div(keys, cpu::kPartKeys), 1, cpu::kMaxPagedParts);
}

template <class T>
void check_values(const cpu::PagedAttention<T>& a, int64_t blocks, int64_t max_keys) {
  const char* op = "paged_attention";
  TRIREME_CHECK(a.cu_q[0] == 0 && a.cu_q[a.sequences] <= a.tokens, op, ": cu_q is from ", a.cu_q[0],
                " to ", a.cu_q[a.sequences], ", expected from 0 to at most ", a.tokens);
  for (int64_t n = 0; n < a.sequences; ++n) {
    const int64_t queries = a.cu_q[n + 1] - a.cu_q[n], keys = a.lengths[n];
    TRIREME_CHECK(queries >= 0 && queries <= a.max_queries && queries <= keys && keys <= max_keys,
                  op, ": sequence ", n, " has ", queries, " queries and ", keys,
                  " keys, expected at most ", a.max_queries, " queries, at most ", max_keys,
                  " keys and no more queries than keys");
    for (int64_t b = 0; b * a.block_size < keys; ++b) {
      const int32_t block = a.table[n * a.max_blocks + b];
      TRIREME_CHECK(block >= 0 && block < blocks, op, ": block ", block,
                    " is not one of the pool's ", blocks);
    }
  }
}

template <class T>
void copy_rows(const cpu::PagedRows<T>& a, bool store) {
  const auto bytes = static_cast<size_t>(a.width) * sizeof(T);
  for (int64_t t = 0; t < a.rows; ++t)
    for (int64_t h = 0; h < a.kv_heads; ++h) {
      const int64_t slot = a.slots[t];
      T* const rows[2] = {a.k.data + t * a.k.row + h * a.k.head,
                          a.v.data + t * a.v.row + h * a.v.head};
      if (slot < 0) {
        if (!store)
          for (T* row : rows) std::fill_n(row, a.width, T{});
        continue;
      }
      const int64_t at =
          ((slot / a.block_size * a.kv_heads + h) * a.block_size + slot % a.block_size) * a.width;
      T* const slots[2] = {a.k_pool + at, a.v_pool + at};
      for (int i = 0; i < 2; ++i)
        store ? std::memcpy(slots[i], rows[i], bytes) : std::memcpy(rows[i], slots[i], bytes);
    }
}

// `store`: writes the pools and reads k and v; else the reverse.
void move_rows(Ctx& ctx, const char* op, const ConstTensor& k_pool, const ConstTensor& v_pool,
               const ConstTensor& k, const ConstTensor& v, const ConstTensor& slots, bool store,
               const PagedScales& scales = {}) {
  check_pools(ctx, op, k_pool, v_pool, scales, k.dtype());
  TRIREME_CHECK(store || k_pool.dtype() == k.dtype(), op, ": pools of ", k_pool.dtype(),
                ", expected the type of k, ", k.dtype());
  const Shape rows{k.size(0), k_pool.size(1), k_pool.size(3)};
  check_strided(op, "k", k, k.dtype(), rows);
  check_strided(op, "v", v, k.dtype(), rows);
  check_operand(op, "slots", slots, DType::kI64, {rows[0]});
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kAttention);
  dispatch_float(op, k.dtype(), [&]<class T>() {
    const auto data = [](const ConstTensor& t) { return const_cast<T*>(t.as<T>()); };
    const bool same = k_pool.dtype() == k.dtype();
    const cpu::PagedRows<T> args{
        .k_pool = same ? data(k_pool) : nullptr,
        .v_pool = same ? data(v_pool) : nullptr,
        .k = {data(k), k.stride(0), k.stride(1)},
        .v = {data(v), v.stride(0), v.stride(1)},
        .slots = slots.as<int64_t>(),
        .rows = rows[0],
        .kv_heads = rows[1],
        .width = rows[2],
        .block_size = k_pool.size(2),
    };
    const cpu::PagedPools pools = pools_of(k_pool, v_pool, scales);
    if (ctx.gpu != nullptr)
      return store ? cuda::paged_append<T>(*ctx.gpu, args, pools)
                   : cuda::paged_gather<T>(*ctx.gpu, args);
    for (int64_t t = 0; t < args.rows; ++t)
      TRIREME_CHECK(args.slots[t] < k_pool.size(0) * args.block_size, op, ": slot ", args.slots[t],
                    " is not below the number of slots, ", k_pool.size(0) * args.block_size);
    if (same) return copy_rows(args, store);
    if constexpr (!std::is_same_v<T, double>)
      TRIREME_KERNEL(paged_append<T>)(args, pools, ctx.threads);
  });
}

}  // namespace

int64_t paged_context_bound(int64_t max_context_len) {
  int64_t bound = cpu::kPartKeys;
  while (bound < max_context_len) bound *= 2;
  return bound < cpu::kPartKeys * cpu::kMaxPagedParts ? bound : 0;
}

void paged_attention(Ctx& ctx, const Tensor& out, const ConstTensor& q, const ConstTensor& k_pool,
                     const ConstTensor& v_pool, const ConstTensor& block_table,
                     const ConstTensor& cu_q, const ConstTensor& context_lens,
                     const PagedAttentionArgs& args, const PagedScales& scales) {
  const char* op = "paged_attention";
  const TimeScope scope(ctx.profile, TimeCategory::kAttention);
  check_pools(ctx, op, k_pool, v_pool, scales, q.dtype());
  TRIREME_CHECK(q.rank() == 3 && block_table.rank() == 2, op, ": q is ", q.shape(),
                ", expected (T, H, D), block_table ", block_table.shape(), ", expected (S, M)");
  const int64_t sequences = block_table.size(0), heads = q.size(1), kv_heads = k_pool.size(1);
  const DType dtype = q.dtype(), sums = sum_dtype(dtype);
  check_strided(op, "q", q, dtype, {q.size(0), heads, k_pool.size(3)});
  check_strided(op, "out", out, dtype, q.shape());
  check_operand(op, "block_table", block_table, DType::kI32, block_table.shape());
  check_operand(op, "cu_q", cu_q, DType::kI32, {sequences + 1});
  check_operand(op, "context_lens", context_lens, DType::kI32, {sequences});
  TRIREME_CHECK(kv_heads > 0 && heads > 0 && heads % kv_heads == 0, op, ": ", heads,
                " query heads cannot share ", kv_heads, " key/value heads");
  TRIREME_CHECK(q.size(2) <= cpu::kMaxPagedHeadDim, op, ": heads of ", q.size(2),
                " elements, at most ", cpu::kMaxPagedHeadDim);
  TRIREME_CHECK(std::isfinite(args.scale) && std::isfinite(args.soft_cap) && args.soft_cap >= 0 &&
                    args.window >= 0 && args.max_queries > 0 && args.max_context_len >= 0,
                op, ": scale ", args.scale, ", soft_cap ", args.soft_cap, ", window ", args.window,
                ", max_queries ", args.max_queries, ", max_context_len ", args.max_context_len);
  if (args.sinks.present()) check_operand(op, "sinks", args.sinks, dtype, {heads});
  // Memory is sized for any context, so that one plan serves all; thread blocks for this one.
  const int64_t table_keys = block_table.size(1) * k_pool.size(2);
  const int64_t max_keys =
      args.max_context_len > 0 ? std::min(args.max_context_len, table_keys) : table_keys;
  Activation partial, partial_lse, work, items;
  if (ctx.gpu != nullptr) {
    const int64_t rows = max_parts(table_keys) > 1 ? cpu::kMaxPagedParts : 0;
    partial = ctx.allocate("paged_attention.partial", sums, {sequences, rows, heads, q.size(2)});
    partial_lse = ctx.allocate("paged_attention.lse", sums, {sequences, rows, heads});
  } else {
    const int64_t padded = round_up(q.size(2), cpu::kMaxFloatLanes);
    work = ctx.allocate("paged_attention.scratch", sums, {ctx.threads, cpu::paged_scratch(padded)});
    items = ctx.allocate("paged_attention.items", DType::kI64, {sequences + 1});
  }
  if (ctx.planning()) return;
  dispatch_float(op, dtype, [&]<class T>() {
    using C = compute_t<T>;
    const cpu::PagedAttention<T> a{
        .q = {q.as<T>(), q.stride(0), q.stride(1)},
        .out = {out.as<T>(), out.stride(0), out.stride(1)},
        .k = k_pool.dtype() == dtype ? k_pool.as<T>() : nullptr,
        .v = k_pool.dtype() == dtype ? v_pool.as<T>() : nullptr,
        .table = block_table.as<int32_t>(),
        .cu_q = cu_q.as<int32_t>(),
        .lengths = context_lens.as<int32_t>(),
        .sinks = args.sinks.present() ? args.sinks.as<T>() : nullptr,
        .sequences = sequences,
        .tokens = q.size(0),
        .heads = heads,
        .kv_heads = kv_heads,
        .width = q.size(2),
        .block_size = k_pool.size(2),
        .max_blocks = block_table.size(1),
        .max_queries = args.max_queries,
        .scale = static_cast<C>(args.scale),
        .cap = static_cast<C>(args.soft_cap * std::numbers::log2e),
        .window = args.window,
        .parts = max_parts(max_keys),
        .partial = partial.present() ? partial->as<C>() : nullptr,
        .partial_lse = partial_lse.present() ? partial_lse->as<C>() : nullptr,
    };
    cpu::PagedPools pools = pools_of(k_pool, v_pool, scales);
    if (ctx.gpu != nullptr) return cuda::paged_attention<T>(*ctx.gpu, a, pools);
    check_values(a, k_pool.size(0), max_keys);
    pools.scratch = work->as<C>();
    pools.items = items->as<int64_t>();
    TRIREME_KERNEL(paged_attention<T>)(a, pools, ctx.threads);
  });
}

void paged_append(Ctx& ctx, const Tensor& k_pool, const Tensor& v_pool, const ConstTensor& k,
                  const ConstTensor& v, const ConstTensor& slots, const PagedScales& scales) {
  move_rows(ctx, "paged_append", k_pool, v_pool, k, v, slots, true, scales);
}

void paged_gather(Ctx& ctx, const Tensor& k, const Tensor& v, const ConstTensor& k_pool,
                  const ConstTensor& v_pool, const ConstTensor& slots) {
  move_rows(ctx, "paged_gather", k_pool, v_pool, k, v, slots, false);
}

}  // namespace trireme
