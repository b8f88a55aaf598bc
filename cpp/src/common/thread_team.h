// A team of threads that lives as long as the executor and runs kernel sequences with barriers between them.
//
// The threads start in the constructor (tens of microseconds each) and sleep between runs. They do not survive fork():
// in a child process run() throws ExecutorError and the destructor returns at once, so a forking server loads its model
// in the children.
#pragma once

#include <functional>
#include <memory>

#include "common/slice.h"

namespace trtc {

class ThreadTeam {
 public:
  // threads >= 1 counts the calling thread; 0 means one per usable core (affinity-aware). ExecutorError when negative
  // or when the system refuses that many threads.
  explicit ThreadTeam(int threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const;

  // Runs body(slice) once on every member, the caller included, and returns when all are done. Within body, barrier()
  // makes every member wait for the others. The first exception thrown by a member is rethrown here; a member that
  // throws must not leave the others waiting: the barrier is broken and they stop too. Afterwards the team is as good
  // as new. Callers on several threads take turns; body itself must not call run.
  void run(const std::function<void(Slice)>& body);

  // To be called by every member of a running body. Spins briefly, then yields, so that an oversubscribed machine
  // still makes progress. Throws if another member failed.
  void barrier();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trtc
