import re
from pathlib import Path

import mmseg
import torch
from mmengine.config import Config
from mmengine.registry import init_default_scope
from mmseg.registry import MODELS

from snnet_mm.apis import cost_table, find_stitched_backbone, set_stitch

README = Path(__file__).parents[1] / 'README.md'
STOCK = 'setr/setr_vit-l_naive_8xb2-160k_ade20k-512x512.py'


def test_the_config_in_the_readme_turns_a_stock_one_into_a_stitched_one(tmp_path):
    config, usage = re.findall(r'```python\n(.*?)```', README.read_text(), re.DOTALL)
    stock = Path(mmseg.__file__).parent / '.mim' / 'configs' / STOCK
    own = tmp_path / 'own.py'
    own.write_text(f'_base_ = [{str(stock)!r}]\n{config}')
    cfg = Config.fromfile(own)
    init_default_scope(cfg.default_scope)
    with torch.device('meta'):
        model = MODELS.build(cfg.model)
    namespace = dict(model=model)
    exec(usage, namespace)
    backbone = find_stitched_backbone(model)
    assert len(backbone.space) == 134
    assert backbone.active_stitch.id == 30
    assert namespace['costs'][30] == cost_table(model, (512, 512))[30]
    set_stitch(model, 0)
    assert backbone.active_stitch.kind == 'anchor'
    assert (cfg.val_cfg.type, cfg.test_cfg.type) == ('StitchValLoop', 'StitchTestLoop')
