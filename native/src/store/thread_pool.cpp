#include "heterps/store/thread_pool.hpp"

#include <algorithm>

namespace heterps::store {

namespace {

// A batch has several parallel passes: a worker that waits a moment is there for the next one.
constexpr int kSpins = 2000;

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
    if (threads <= 0) threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    workers_.reserve(static_cast<std::size_t>(threads - 1));
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { serve(); });
}

ThreadPool::~ThreadPool() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::take_parts(Job& job) {
    for (;;) {
        const std::size_t part = job.next.fetch_add(1, std::memory_order_relaxed);
        if (part >= job.parts) return;
        try {
            job.call(job.work, part);
        } catch (...) {
            const std::lock_guard<std::mutex> lock(mutex_);
            if (!job.error) job.error = std::current_exception();
        }
    }
}

void ThreadPool::withdraw(Job& job) {
    const auto found = std::find(open_.begin(), open_.end(), &job);
    if (found == open_.end()) return;
    open_.erase(found);
    offered_.fetch_sub(1, std::memory_order_relaxed);
}

void ThreadPool::run_job(Job& job) {
    if (job.parts <= 1 || workers_.empty()) {
        for (std::size_t part = 0; part < job.parts; ++part) job.call(job.work, part);
        return;
    }
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        open_.push_back(&job);
        offered_.fetch_add(1, std::memory_order_relaxed);
    }
    wake_.notify_all();
    take_parts(job);
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        withdraw(job);  // from here on no worker can join
    }
    for (int i = 0; i < kSpins && job.helpers.load(std::memory_order_acquire) > 0; ++i) pause();
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [&] { return job.helpers.load(std::memory_order_acquire) == 0; });
    if (job.error) std::rethrow_exception(job.error);
}

void ThreadPool::await_work() const {
    for (int i = 0; i < kSpins && offered_.load(std::memory_order_relaxed) == 0; ++i) pause();
}

void ThreadPool::serve() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
        wake_.wait(lock, [&] { return stop_ || !open_.empty(); });
        if (stop_) return;
        Job& job = *open_.front();
        job.helpers.fetch_add(1, std::memory_order_relaxed);
        lock.unlock();
        take_parts(job);
        lock.lock();
        withdraw(job);
        if (job.helpers.fetch_sub(1, std::memory_order_release) == 1) done_.notify_all();
        if (!open_.empty()) continue;
        lock.unlock();
        await_work();
        lock.lock();
    }
}

}  // namespace heterps::store
