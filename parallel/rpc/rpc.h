// Remote procedure calls between the workers of a job: functions by name, tensors in and out, a deadline for
// each call. What PyTorch's lessons do with torch.distributed.rpc; gradients do not flow through a call.
//
//     const auto add = [](int, const Tensors& in) { return Tensors{in[0] + in[1]}; };
//     Rpc rpc(peers.communicator(), {{"add", add}}, peers.rpc_options(environment, deadline), deadline);
//     if (rpc.rank() == 0) std::cout << rpc.call(1, "add", {x, y}, deadline)[0];
//     rpc.shutdown(deadline);
#pragma once

#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "cluster/net/protection.h"
#include "cluster/net/token.h"
#include "collectives/communicator.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/tensor/tensor.h"

namespace dtrain {

/// What others may call. `caller` is the rank that calls; arguments are on RpcOptions::cpu, results may be on
/// any device. Several calls run at the same time, each in a thread of its own: what functions share needs a
/// lock.
using RemoteFunction = std::function<Tensors(int caller, const Tensors& arguments)>;
using RemoteFunctions = std::map<std::string, RemoteFunction>;

/// Where and how a worker answers calls; Peers::rpc_options() fills it in.
struct RpcOptions {
  std::string address = "127.0.0.1";  ///< to listen on, such that all others reach it
  std::string host = {};              ///< this machine's name, as errors show it
  std::optional<Token> token = {};    ///< the job's secret; without one, only loopback addresses
  Protection protection = Protection::authenticate;  ///< of messages; the same on all workers
  std::shared_ptr<Device> cpu = {};  ///< where tensors that come are made; null: default_device()
  int threads = 16;                  ///< calls that are answered at a time; further ones wait
};

/// The function threw: the message has its rank, its name and its error.
class RemoteError : public Error {
 public:
  using Error::Error;
};

/// A worker's part in the calls of its group. call() and call_async() may be used from any thread, remote
/// functions included. Every rank may call every rank, itself too; a connection is made with the first call.
class Rpc {
 public:
  /// Collective over `communicator`, which is borrowed: afterwards all ranks' functions can be called. Throws
  /// UsageError where others can reach the address and there is no token, PeerError when the others do not
  /// come.
  Rpc(Communicator& communicator, RemoteFunctions functions, const RpcOptions& options,
      const Deadline& deadline);
  /// Calls that are under way here fail; functions that run are waited for.
  ~Rpc();
  Rpc(const Rpc&) = delete;
  Rpc& operator=(const Rpc&) = delete;

  int rank() const noexcept;
  int size() const noexcept;

  /// What `function` of `rank` gives for `arguments` (of any device, dtype and shape), on RpcOptions::cpu.
  /// Throws RemoteError when it throws, UsageError for a rank or a function that does not exist, PeerError
  /// when the rank is lost, which is noticed at once, or has not answered by `deadline`; the function may run
  /// on there.
  Tensors call(int rank, const std::string& function, const Tensors& arguments, const Deadline& deadline);
  /// The same, without waiting for the answer; throws at once what can be told at once.
  std::future<Tensors> call_async(int rank, const std::string& function, const Tensors& arguments,
                                  const Deadline& deadline);

  /// Collective: waits for the calls that were made here, then for all other ranks; until then this rank
  /// answers calls. Afterwards none can be made. Throws PeerError.
  void shutdown(const Deadline& deadline);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtrain
