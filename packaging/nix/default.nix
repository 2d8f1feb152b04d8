# nix-build packaging/nix
{ pkgs ? import <nixpkgs> { } }:
pkgs.stdenv.mkDerivation {
  pname = "palimpsa";
  version = "0.1.0";
  src = pkgs.lib.cleanSource ../..;
  nativeBuildInputs = with pkgs; [ cmake installShellFiles ninja pkg-config python3 ];
  buildInputs = with pkgs; [ cairo jansson libmicrohttpd oneDNN oniguruma utf8proc ];
  cmakeFlags = [ "-DPALIMPSA_TESTS=OFF" "-DPALIMPSA_MPI=OFF" ];
  postBuild = "cmake --build . --target manual";
  postInstall = ''
    installManPage manual/man1/*.1
    installShellCompletion --bash --name palimpsa manual/palimpsa.bash
    installShellCompletion --zsh manual/_palimpsa --fish manual/palimpsa.fish
  '';
  doInstallCheck = true;
  installCheckPhase = "$out/bin/palimpsa selftest";
  meta = {
    description = "Linear-attention language models on ordinary CPUs";
    license = pkgs.lib.licenses.mit;
    platforms = [ "x86_64-linux" "aarch64-linux" ];
    mainProgram = "palimpsa";
  };
}
