import contextlib, json, shutil
from pathlib import Path
import pytest
from marathond.core.model import LoopXProfile
from tests.integration.test_loopx_driver import begun, loopx_arm, ground
from tests.support import loopx_agent
from tests.support.driven import count
pytestmark=[pytest.mark.docker, pytest.mark.anyio]
OUT=Path("/var/tmp/dev/scratch-receipts/out")
@pytest.fixture
def anyio_backend(): return "asyncio"
@pytest.mark.parametrize("profile", list(LoopXProfile))
async def test_dump(ground, tmp_path, profile):
    steps=(loopx_agent.ask(profile), count("worked"), loopx_agent.settle())
    async with begun(ground, tmp_path, loopx_arm(profile), *steps) as driven:
        print(await driven.wait())
        entries=await driven.trial.env.log.entries()
        out=OUT/profile.value
        shutil.rmtree(out, ignore_errors=True); out.mkdir(parents=True)
        (out/"log.json").write_text(json.dumps([[e.kind,dict(e.detail)] for e in entries], indent=1))
        r=await driven.trial.collect()
        (out/"receipt.json").write_text(json.dumps(r.data, indent=1))
        shutil.copytree(driven.trial.env.run_dir.root, out/"run", ignore=lambda d,n:[x for x in n if x.endswith(".sock") or x=="runtime-lock"], symlinks=True, ignore_dangling_symlinks=True)
