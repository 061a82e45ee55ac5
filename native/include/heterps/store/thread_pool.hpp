// A few threads that stay alive and share out the parts of a batch.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace heterps::store {

class ThreadPool {
  public:
    explicit ThreadPool(int threads);  // in all, the caller's included; 0: one per core
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int threads() const { return static_cast<int>(workers_.size()) + 1; }

    // Calls work(part) for every part below `parts` and returns when all are done. The caller takes
    // part. Parts run in any order; the first exception is thrown again here, after all have ended.
    // Several threads may call at once.
    template <class Work>
    void run(std::size_t parts, Work&& work) {
        using Plain = std::remove_reference_t<Work>;
        Job job;
        job.parts = parts;
        job.work = const_cast<void*>(static_cast<const void*>(&work));
        job.call = [](void* context, std::size_t part) { (*static_cast<Plain*>(context))(part); };
        run_job(job);
    }

  private:
    struct Job {
        std::size_t parts = 0;
        void* work = nullptr;
        void (*call)(void*, std::size_t) = nullptr;
        std::atomic<std::size_t> next{0};
        std::atomic<int> helpers{0};
        std::exception_ptr error;  // guarded by mutex_
    };

    void run_job(Job& job);
    void take_parts(Job& job);
    void serve();
    void withdraw(Job& job);  // with mutex_ held
    void await_work() const;

    std::vector<std::thread> workers_;
    std::mutex mutex_;
    std::condition_variable wake_, done_;
    std::vector<Job*> open_;  // jobs with parts that nobody took yet
    std::atomic<int> offered_{0};
    bool stop_ = false;
};

}  // namespace heterps::store
