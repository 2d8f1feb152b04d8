class Palimpsa < Formula
  desc "Linear-attention language models on ordinary CPUs"
  homepage "https://example.org/palimpsa"
  url "https://example.org/palimpsa/releases/download/v0.1.0/palimpsa-0.1.0.tar.gz"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000" # of the release's SHA256SUMS
  license "MIT"

  depends_on "cmake" => :build
  depends_on "ninja" => :build
  depends_on "pkgconf" => :build
  depends_on "python@3.13" => :build # writes the manual pages
  depends_on "cairo"
  depends_on "jansson"
  depends_on "libmicrohttpd"
  depends_on :linux
  depends_on "onednn"
  depends_on "oniguruma"
  depends_on "utf8proc"

  def install
    system "cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DPALIMPSA_TESTS=OFF", "-DPALIMPSA_MPI=OFF", *std_cmake_args
    system "cmake", "--build", "build", "--target", "palimpsa_cli", "palimpsa_shared", "palimpsa_static", "manual"
    system "cmake", "--install", "build"
    man1.install Dir["build/manual/man1/*.1"]
    bash_completion.install "build/manual/palimpsa.bash" => "palimpsa"
    zsh_completion.install "build/manual/_palimpsa"
    fish_completion.install "build/manual/palimpsa.fish"
  end

  test do
    assert_match "0 failed", shell_output("#{bin}/palimpsa selftest")
  end
end
