// A small test harness: TEST registers a case, CHECK notes a failure and goes on.
#pragma once

#include <functional>
#include <sstream>
#include <string>
#include <vector>

namespace heterps::testing {

struct Case {
    const char* name;
    std::function<void()> body;
};

std::vector<Case>& cases();
void fail(const char* file, int line, const std::string& what);

struct Registration {
    Registration(const char* name, std::function<void()> body) {
        cases().push_back({name, std::move(body)});
    }
};

// An empty folder that goes away with the object.
class TemporaryFolder {
  public:
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

template <class A, class B>
void check_equal(const A& a, const B& b, const char* text, const char* file, int line) {
    if (a == b) return;
    std::ostringstream what;
    what << text << ": " << a << " and " << b;
    fail(file, line, what.str());
}

}  // namespace heterps::testing

#define TEST(name)                                                                   \
    static void name();                                                              \
    static const ::heterps::testing::Registration name##_registration(#name, &name); \
    static void name()

#define CHECK(condition)                                                            \
    do {                                                                            \
        if (!(condition)) ::heterps::testing::fail(__FILE__, __LINE__, #condition); \
    } while (false)

#define CHECK_EQUAL(a, b) \
    ::heterps::testing::check_equal((a), (b), #a " == " #b, __FILE__, __LINE__)

#define CHECK_THROWS(expression, type)                                                           \
    do {                                                                                         \
        bool thrown = false;                                                                     \
        try {                                                                                    \
            (void)(expression);                                                                  \
        } catch (const type&) {                                                                  \
            thrown = true;                                                                       \
        }                                                                                        \
        if (!thrown) ::heterps::testing::fail(__FILE__, __LINE__, #expression " throws " #type); \
    } while (false)
