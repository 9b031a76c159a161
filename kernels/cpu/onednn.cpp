/* onednn.cpp - matrix products by oneDNN. Every exception ends here: it throws bad_alloc through
 * its C interface too. */
#include "kernels/cpu/onednn.h"

#include <dlfcn.h>

#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <new>
#include <tuple>

#include <dnnl.hpp>

namespace
{
using key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int>;

struct made {
    dnnl::matmul::primitive_desc pd;
    dnnl::matmul prim;
};

dnnl::memory::desc matrix(int64_t rows, int64_t cols, int64_t ld, bool transposed)
{
    using md = dnnl::memory;
    return md::desc({rows, cols}, md::data_type::f32,
                    transposed ? md::dims{1, ld} : md::dims{ld, 1});
}

dnnl::primitive_attr attributes(const mm_shape &s)
{
    dnnl::primitive_attr attr;
    dnnl::post_ops ops;

    /* the caller's scratch: one primitive is run by several threads at once */
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (s.accumulate)
        ops.append_sum(1.f);
    attr.set_post_ops(ops);
    return attr;
}

dnnl::matmul::primitive_desc describe(const dnnl::engine &e, const mm_shape &s)
{
    const auto a = matrix(s.m, s.k, s.lda, s.ta), b = matrix(s.k, s.n, s.ldb, s.tb);
    const auto bias = matrix(1, s.n, s.n, false), c = matrix(s.m, s.n, s.ldc, false);
    const auto attr = attributes(s);
#if DNNL_VERSION_MAJOR >= 3
    return s.bias ? dnnl::matmul::primitive_desc(e, a, b, bias, c, attr)
                  : dnnl::matmul::primitive_desc(e, a, b, c, attr);
#else
    return s.bias ? dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, bias, c), attr, e)
                  : dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), attr, e);
#endif
}

/* One OpenMP thread in whichever thread this is: the pool is all there is. A oneDNN without OpenMP
 * has no such function. */
void one_omp_thread()
{
    thread_local bool done = false;
    using set_fn = void (*)(int);

    if (done)
        return;
    done = true;
    if (auto set = reinterpret_cast<set_fn>(dlsym(RTLD_DEFAULT, "omp_set_num_threads")))
        set(1);
}
} // namespace

struct dnnl_cache {
    dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    std::map<key, made> made_of;
};

struct mm {
    const made *p; /* the cache's */
    dnnl::stream stream;
    dnnl::memory a, b, c, bias, scratch;
    dnnl_exec_arg_t args[5]; /* the handles of the above: an execution then makes no list of them */
    int n_args;
};

namespace
{
const made *find_or_make(dnnl_cache *c, const mm_shape &s)
{
    const int flags = s.ta | s.tb << 1 | s.bias << 2 | s.accumulate << 3;
    const key k{s.m, s.n, s.k, s.lda, s.ldb, s.ldc, flags};
    auto at = c->made_of.find(k);

    if (at == c->made_of.end()) {
        const auto pd = describe(c->engine, s);
        at = c->made_of.emplace(k, made{pd, dnnl::matmul(pd)}).first;
    }
    return &at->second;
}

void fill(mm *m, dnnl_cache *c, const mm_shape &s)
{
    m->p = find_or_make(c, s);
    m->stream = dnnl::stream(c->engine);
    const auto &pd = m->p->pd;
    m->a = dnnl::memory(pd.src_desc(), c->engine, DNNL_MEMORY_NONE);
    m->b = dnnl::memory(pd.weights_desc(), c->engine, DNNL_MEMORY_NONE);
    m->c = dnnl::memory(pd.dst_desc(), c->engine, DNNL_MEMORY_NONE);
    m->scratch = dnnl::memory(pd.scratchpad_desc(), c->engine);
    m->args[m->n_args++] = {DNNL_ARG_SRC, m->a.get()};
    m->args[m->n_args++] = {DNNL_ARG_WEIGHTS, m->b.get()};
    m->args[m->n_args++] = {DNNL_ARG_DST, m->c.get()};
    m->args[m->n_args++] = {DNNL_ARG_SCRATCHPAD, m->scratch.get()};
    if (!s.bias)
        return;
    m->bias = dnnl::memory(pd.bias_desc(), c->engine, DNNL_MEMORY_NONE);
    m->args[m->n_args++] = {DNNL_ARG_BIAS, m->bias.get()};
}
} // namespace

dnnl_cache *dnnl_cache_new(void)
{
    try {
        one_omp_thread();
        return new dnnl_cache;
    } catch (...) {
        return nullptr;
    }
}

void dnnl_cache_free(dnnl_cache *c)
{
    delete c;
}

int mm_new(dnnl_cache *c, const mm_shape *s, mm **out, char *why, size_t cap)
{
    *out = nullptr;
    try {
        one_omp_thread();
        auto m = std::unique_ptr<mm>(new mm{});
        fill(m.get(), c, *s);
        *out = m.release();
        return 0;
    } catch (const std::exception &e) {
        std::snprintf(why, cap, "oneDNN: %s", e.what());
    } catch (...) {
        std::snprintf(why, cap, "oneDNN failed");
    }
    return -1;
}

void mm_free(mm *m)
{
    delete m;
}

int mm_run(mm *m, const float *a, const float *b, const float *bias, float *c)
{
    try {
        one_omp_thread();
        m->a.set_data_handle(const_cast<float *>(a));
        m->b.set_data_handle(const_cast<float *>(b));
        m->c.set_data_handle(c);
        if (m->n_args == 5)
            m->bias.set_data_handle(const_cast<float *>(bias));
        if (dnnl_primitive_execute(m->p->prim.get(), m->stream.get(), m->n_args, m->args) !=
            dnnl_success)
            return -1;
        return dnnl_stream_wait(m->stream.get()) == dnnl_success ? 0 : -1;
    } catch (...) {
        return -1;
    }
}

const char *cpu_dnnl_version(char *buf, size_t cap)
{
    const dnnl_version_t *v = dnnl_version();

    std::snprintf(buf, cap, "%d.%d.%d", v->major, v->minor, v->patch);
    return buf;
}
